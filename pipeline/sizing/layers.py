"""The layers of a decoder: which keep a full cache, which a window, which a constant state.

Hybrid models name their layers in half a dozen ways; each is read here and nowhere else. A field that is
needed and absent is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from pipeline.sizing.units import SizingError

LayerKind = Literal["full", "window", "recurrent", "none"]

_LAYER_KINDS: Final[dict[str, LayerKind]] = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mamba2": "recurrent",
    "recurrent": "recurrent",
    "mlp": "none",
    "moe": "none",
}


class GeometryError(SizingError):
    """The configuration lacks or contradicts a field; ``field`` names it."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"config.json: {field}: {why}")
        self.field = field


class Reader:
    """Typed look-ups that fail by naming the field."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def optional(self, *names: str) -> int | None:
        """The first of ``names`` that is set, as a whole number."""
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise GeometryError(name, f"a whole number is needed, not {value!r}")
            return value
        return None

    def required(self, *names: str, why: str) -> int:
        """Like :meth:`optional`, refusing an absent or zero value by the first name."""
        value = self.optional(*names)
        if not value:
            also = f" (also looked for {', '.join(names[1:])})" if len(names) > 1 else ""
            raise GeometryError(names[0], f"missing; {why}{also}")
        return value


def layer_kinds(
    text: Mapping[str, Any], read: Reader, count: int, model_type: str
) -> tuple[tuple[LayerKind, ...], int | None]:
    """The kind of every layer, and the window in tokens of the windowed ones.

    Raises:
        GeometryError: the description does not fit the number of layers or lacks the window.
    """
    window = read.optional(
        "sliding_window", "attention_chunk_size", "sliding_window_size", "local_attention_window"
    )
    if text.get("use_sliding_window") is False:
        window = None
    named = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(named, Sequence) and not isinstance(named, str):
        return _named_layers(named, count, window), window
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        kinds: dict[str, LayerKind] = {"M": "recurrent", "*": "full", "-": "none", "E": "none"}
        letters = re.sub(r"\s", "", pattern)
        unknown = set(letters) - set(kinds)
        if unknown or len(letters) != count:
            raise GeometryError("hybrid_override_pattern", f"{pattern!r} does not describe {count} layers")
        return tuple(kinds[letter] for letter in letters), window
    every = read.optional("full_attention_interval", "attn_layer_period")
    if every:
        offset = read.optional("attn_layer_offset")
        at = every - 1 if offset is None else offset
        return _every(count, lambda i: i % every == at, "recurrent"), window
    indices = text.get("attn_layer_indices")
    if isinstance(indices, Sequence):
        return _every(count, lambda i: i in indices, "recurrent"), window
    if not window:
        return _every(count, lambda _: True, "window"), None
    period = read.optional("sliding_window_pattern", "_sliding_window_pattern")
    if period is None and model_type == "gemma2":
        period = 2
    if period:
        return _every(count, lambda i: (i + 1) % period == 0, "window"), window
    first = read.optional("max_window_layers")
    if first is not None and text.get("use_sliding_window"):
        return _every(count, lambda i: i < first, "window"), window
    return _every(count, lambda _: False, "window"), window


def _every(count: int, is_full: Callable[[int], bool], other: LayerKind) -> tuple[LayerKind, ...]:
    kinds: list[LayerKind] = ["full" if is_full(i) else other for i in range(count)]
    return tuple(kinds)


def _named_layers(named: Sequence[Any], count: int, window: int | None) -> tuple[LayerKind, ...]:
    if len(named) != count:
        raise GeometryError("layer_types", f"{len(named)} entries for {count} layers")
    kinds: list[LayerKind] = []
    for name in named:
        kind = _LAYER_KINDS.get(str(name))
        if kind is None:
            raise GeometryError("layer_types", f"unknown layer type {name!r}")
        if kind == "window" and not window:
            raise GeometryError("sliding_window", f"missing, but layer_types names {name!r}")
        kinds.append(kind)
    return tuple(kinds)


def state_elements(text: Mapping[str, Any], read: Reader, hidden: int) -> int:
    """Elements of the recurrent state of one sequence in one layer (gated delta net, Mamba 2, Mamba 1)."""
    why = "a recurrent layer keeps a state of this size per sequence"
    value_heads = read.optional("linear_num_value_heads")
    if value_heads:
        key_dim = read.required("linear_key_head_dim", why=why)
        value_dim = read.required("linear_value_head_dim", why=why)
        key_heads = read.required("linear_num_key_heads", why=why)
        kernel = read.required("linear_conv_kernel_dim", why=why)
        channels = 2 * key_heads * key_dim + value_heads * value_dim
        return value_heads * key_dim * value_dim + channels * (kernel - 1)
    state = read.required("mamba_d_state", "ssm_state_size", "state_size", why=why)
    kernel = read.required("mamba_d_conv", "conv_kernel", "d_conv", why=why)
    heads = read.optional("mamba_n_heads", "mamba_num_heads")
    if heads:
        dim = read.required("mamba_d_head", "mamba_head_dim", why=why)
        groups = read.optional("mamba_n_groups", "n_groups") or 1
        inner = heads * dim
        return inner * state + (inner + 2 * groups * state) * (kernel - 1)
    inner = read.required("mamba_expand", "expand", why=why) * hidden
    return inner * state + inner * (kernel - 1)
