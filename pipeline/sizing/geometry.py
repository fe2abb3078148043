"""Model geometry from a ``config.json``: what decides the size of the KV cache and of the weights.

Reads the file that ships with the weights; no model library is loaded. A configuration that lacks a field
which the arithmetic needs is refused by naming that field, because a guessed head count is off by a factor
of four to eight and looks just as plausible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipeline.sizing.layers import GeometryError, LayerKind, Reader, layer_kinds, state_elements

#: Model types whose configuration may leave out ``num_key_value_heads`` because they never group heads.
_MULTI_HEAD_TYPES: Final = frozenset(
    {"gpt2", "gptj", "gpt_neox", "opt", "bloom", "llama", "phi", "mpt", "stablelm", "codegen", "gpt_neo"}
)

#: Model types that share input and output embedding when the configuration does not say.
_TIED_BY_DEFAULT: Final = ("gemma", "gpt2", "cohere", "falcon", "bloom")


@dataclass(frozen=True, slots=True)
class Experts:
    """Mixture-of-experts part: routed experts per MoE layer, how many a token visits, and their width."""

    routed: int
    active: int
    width: int
    shared_width: int
    moe_layers: int


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector per token and layer, the same on every rank."""

    kv_rank: int
    rope_dim: int
    q_rank: int | None
    qk_nope_dim: int
    v_dim: int
    indexer_dim: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """What the arithmetic needs of a model; sizes are element counts, never bytes.

    ``layers`` holds one kind per decoder layer; ``window`` is the attention window of the ``window`` layers
    in tokens; ``state_elements`` is the constant recurrent state of one sequence in one recurrent layer.
    """

    model_type: str
    layers: tuple[LayerKind, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    gated_mlp: bool
    dtype_bytes: float
    max_context: int | None
    window: int | None = None
    latent: Latent | None = None
    experts: Experts | None = None
    state_elements: int = 0
    shared_kv_layers: int = 0
    global_head_dim: int | None = None
    global_kv_heads: int | None = None
    quantisation: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def count(self, kind: LayerKind) -> int:
        """How many layers of a kind there are."""
        return sum(layer == kind for layer in self.layers)

    @property
    def attention_layers(self) -> int:
        """Layers that keep a KV cache of any length."""
        return self.count("full") + self.count("window")


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model inside a multimodal configuration."""
    for key in ("text_config", "llm_config", "language_config", "language_model", "thinker_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            inherited = {k: v for k, v in config.items() if not isinstance(v, Mapping)}
            quantisation = config.get("quantization_config")
            merged = {**inherited, **_text_part(nested)}
            if quantisation is not None:
                merged.setdefault("quantization_config", quantisation)
            return merged
    return config


def parse_config(config: Mapping[str, Any]) -> Geometry:
    """Geometry of the model that a Hugging Face ``config.json`` describes.

    Raises:
        GeometryError: a field the KV or weight arithmetic needs is missing or contradictory.
    """
    text = _text_part(config)
    read = Reader(text)
    notes: list[str] = []
    model_type = str(text.get("model_type") or "unknown")
    count = read.required(
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        why="the number of layers scales the KV cache",
    )
    heads = read.required(
        "num_attention_heads", "n_head", "n_heads", "num_heads", why="needed for the head dimension"
    )
    hidden = read.required(
        "hidden_size", "n_embd", "d_model", why="needed for the head dimension and weights"
    )
    latent = _latent(read)
    head_dim = read.optional("head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None:
        if hidden % heads and latent is None:
            raise GeometryError(
                "head_dim", f"missing, and hidden_size {hidden} is no multiple of {heads} heads"
            )
        head_dim = hidden // heads
        if latent is None:
            notes.append(f"head_dim derived as hidden_size / num_attention_heads = {head_dim}")
    layers, window = layer_kinds(text, read, count, model_type)
    experts = _experts(text, read, layers)
    recurrent = "recurrent" in layers
    return Geometry(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(text, read, heads, latent, model_type, notes),
        head_dim=head_dim,
        intermediate=read.optional("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
        or 4 * hidden,
        vocabulary=read.required("vocab_size", why="the embedding is part of the weights"),
        tied=bool(text.get("tie_word_embeddings", model_type.startswith(_TIED_BY_DEFAULT))),
        gated_mlp=_gated(text, model_type),
        dtype_bytes=_dtype_bytes(text),
        max_context=read.optional("max_position_embeddings", "n_positions", "max_sequence_length"),
        window=window,
        latent=latent,
        experts=experts,
        state_elements=state_elements(text, read, hidden) if recurrent else 0,
        shared_kv_layers=read.optional("num_kv_shared_layers") or 0,
        global_head_dim=read.optional("global_head_dim"),
        global_kv_heads=read.optional("num_global_key_value_heads"),
        quantisation=text.get("quantization_config"),
        notes=tuple(notes),
    )


def _kv_heads(
    text: Mapping[str, Any],
    read: Reader,
    heads: int,
    latent: Latent | None,
    model_type: str,
    notes: list[str],
) -> int:
    found = read.optional("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_query_groups")
    if found is None and isinstance(attention := text.get("attn_config"), Mapping):
        found = Reader(attention).optional("kv_n_heads")
    if found is None and text.get("multi_query") is True:
        found = 1
    if found is None and latent is not None:
        found = heads
    if found is None and model_type in _MULTI_HEAD_TYPES:
        notes.append("num_key_value_heads absent: every attention head keeps its own keys and values")
        found = heads
    if not found:
        raise GeometryError(
            "num_key_value_heads",
            f"missing, and model type {model_type!r} is not known to use one KV head per attention head; "
            "the KV cache is proportional to it",
        )
    if found > heads or (latent is None and heads % found):
        raise GeometryError("num_key_value_heads", f"{found} does not divide {heads} attention heads")
    return found


def _latent(read: Reader) -> Latent | None:
    rank = read.optional("kv_lora_rank")
    if not rank:
        return None
    return Latent(
        kv_rank=rank,
        rope_dim=read.required("qk_rope_head_dim", why="the rotary part is cached beside the latent vector"),
        q_rank=read.optional("q_lora_rank"),
        qk_nope_dim=read.required("qk_nope_head_dim", why="needed for the attention weights"),
        v_dim=read.required("v_head_dim", why="needed for the attention weights"),
        indexer_dim=read.optional("index_head_dim") or 0,
    )


def _experts(text: Mapping[str, Any], read: Reader, layers: Sequence[LayerKind]) -> Experts | None:
    routed = read.optional("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    if not routed:
        return None
    active = read.required(
        "num_experts_per_tok",
        "num_experts_per_token",
        "moe_topk",
        "top_k_experts",
        why="sets the active parameters",
    )
    width = read.required(
        "moe_intermediate_size", "expert_intermediate_size", "intermediate_size", why="the width of an expert"
    )
    shared = read.optional("shared_expert_intermediate_size", "shared_intermediate_size")
    if shared is None:
        shared = width * (read.optional("n_shared_experts", "num_shared_experts") or 0)
    total = len(layers)
    dense_first = read.optional("first_k_dense_replace") or 0
    step = read.optional("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq") or 1
    dense_only = text.get("mlp_only_layers") or []
    moe = sum(
        1
        for index in range(total)
        if index >= dense_first and (index + 1) % step == 0 and index not in dense_only
    )
    return Experts(routed, active, width, shared, moe)


def _gated(text: Mapping[str, Any], model_type: str) -> bool:
    """Whether the MLP has three matrices (gate, up, down) rather than two."""
    activation = str(text.get("hidden_act") or text.get("activation_function") or "silu")
    return model_type not in {
        "gpt2",
        "gptj",
        "gpt_neox",
        "opt",
        "bloom",
        "phi",
        "mpt",
        "falcon",
        "starcoder2",
    } and (activation not in {"relu", "relu2"})


def _dtype_bytes(text: Mapping[str, Any]) -> float:
    name = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16").removeprefix("torch.")
    sizes = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0, "float8_e5m2": 1.0}
    if name not in sizes:
        raise GeometryError("torch_dtype", f"unknown element type {name!r}")
    return sizes[name]
