"""Weights: parameters, total and active, and the bytes they take on one GPU under a parallelism.

Quantised checkpoints keep embeddings, norms and the output head in the original type, so their size is not
parameters times bits over eight; the share that is quantised and the scales are counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.sizing.geometry import Geometry
from pipeline.sizing.units import GB, SizingError


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How a replica is spread: tensor, pipeline and expert parallel sizes.

    ``expert`` is the number of ranks that the routed experts are divided over (1: they are sliced by tensor
    parallelism like every other matrix). A replica occupies ``tensor * pipeline`` GPUs.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "expert"):
            if getattr(self, name) < 1:
                raise SizingError(f"{name} parallel size must be at least 1")
        if self.expert > 1 and self.expert % self.tensor:
            raise SizingError(
                f"expert parallel size {self.expert} must be a multiple of tensor size {self.tensor}"
            )

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts by what happens to them: sliced, replicated, routed to experts."""

    embedding: int
    lookup: int
    attention_sliced: int
    attention_kv: int
    attention_replicated: int
    dense: int
    experts: int
    experts_active: int

    @property
    def total(self) -> int:
        """Every parameter of the checkpoint (norms and biases, below 0.1 %, are left out)."""
        return self._shared + self.experts

    @property
    def active(self) -> int:
        """Parameters that one token visits; an embedding that is only looked up is left out."""
        return self._shared - self.lookup + self.experts_active

    @property
    def _shared(self) -> int:
        return (
            self.embedding
            + self.attention_sliced
            + self.attention_kv
            + self.attention_replicated
            + self.dense
        )


def count_parameters(geometry: Geometry) -> Parameters:
    """Parameters of a model from its geometry."""
    hidden, g = geometry.hidden, geometry
    embedding = g.vocabulary * hidden * (1 if g.tied else 2)
    attention = g.attention_layers
    sliced = kv = replicated = 0
    if g.latent is not None:
        mla = g.latent
        qk = mla.qk_nope_dim + mla.rope_dim
        replicated = attention * hidden * (mla.kv_rank + mla.rope_dim)
        if mla.q_rank:
            replicated += attention * hidden * mla.q_rank
            sliced = attention * mla.q_rank * g.heads * qk
        else:
            sliced = attention * hidden * g.heads * qk
        sliced += attention * mla.kv_rank * g.heads * (mla.qk_nope_dim + mla.v_dim)
        sliced += attention * g.heads * mla.v_dim * hidden
    else:
        sliced = attention * 2 * hidden * g.heads * g.head_dim
        kv = attention * 2 * hidden * g.kv_heads * g.head_dim
    # A recurrent layer projects in and out of an inner width close to that of attention.
    sliced += g.count("recurrent") * 4 * hidden * g.heads * g.head_dim
    matrices = 3 if g.gated_mlp else 2
    moe_layers = g.experts.moe_layers if g.experts else 0
    dense_layers = len(g.layers) - g.count("none") - moe_layers
    dense = max(0, dense_layers) * matrices * hidden * g.intermediate
    routed = active = 0
    if g.experts is not None:
        per_expert = matrices * hidden * g.experts.width
        routed = moe_layers * g.experts.routed * per_expert
        active = moe_layers * g.experts.active * per_expert
        dense += moe_layers * (matrices * hidden * g.experts.shared_width + hidden * g.experts.routed)
    lookup = 0 if g.tied else g.vocabulary * hidden
    return Parameters(embedding, lookup, sliced, kv, replicated, dense, routed, active)


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes per parameter, scales included, of quantised and of untouched matrices."""

    linear_bytes: float
    other_bytes: float
    experts_only: bool = False
    label: str = "bf16"


def precision_of(geometry: Geometry) -> Precision:
    """Precision that ``quantization_config`` declares; without one, the element type of the checkpoint.

    Scales: FP8 one 4-byte scale per block (default 128 x 128); INT4 one 2-byte scale and one zero point per
    group (default 128); MXFP4 one byte per 32; NVFP4 one byte per 16.

    Raises:
        SizingError: the quantisation method is not known.
    """
    dtype = geometry.dtype_bytes
    config = geometry.quantisation
    if not config:
        return Precision(dtype, dtype, label=f"{dtype * 8:.0f}-bit")
    method = str(config.get("quant_method", "")).lower()
    if method in {"fp8", "fbgemm_fp8"}:
        block = config.get("weight_block_size") or [128, 128]
        return Precision(1 + 4 / (block[0] * block[1]), dtype, label="fp8")
    if method in {"awq", "gptq", "gptq_marlin", "awq_marlin", "auto-round"}:
        bits = int(config.get("bits") or config.get("w_bit") or 4)
        return Precision(_grouped_bytes(bits, config.get("group_size")), dtype, label=f"int{bits}")
    if method == "mxfp4":
        return Precision(4.25 / 8, dtype, experts_only=True, label="mxfp4")
    if method == "modelopt":
        fp4 = "NVFP4" in str(config.get("quant_algo", "")).upper()
        return Precision(4.5 / 8 if fp4 else 1.0, dtype, label="nvfp4" if fp4 else "fp8")
    if method == "bitsandbytes":
        return Precision(0.5 + 4 / 64 / 8 if config.get("load_in_4bit") else 1.0, dtype, label="bitsandbytes")
    if method == "compressed-tensors":
        return _compressed(config, dtype)
    raise SizingError(f"config.json: quantization_config.quant_method: unknown method {method!r}")


def _grouped_bytes(bits: int, group: Any) -> float:
    size = int(group or 128)
    if size <= 0:
        return bits / 8
    return bits / 8 + (2 + bits / 8) / size


def _compressed(config: Mapping[str, Any], dtype: float) -> Precision:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping) or "num_bits" not in weights:
        raise SizingError("config.json: quantization_config.config_groups.*.weights.num_bits: missing")
    bits = int(weights["num_bits"])
    per_value = _grouped_bytes(bits, weights["group_size"]) if weights.get("group_size") else bits / 8
    return Precision(per_value, dtype, label=f"{weights.get('type', 'int')}{bits}")


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the weights: the whole model, one GPU of the replica, and what a token reads on that GPU."""

    total_gb: float
    per_gpu_gb: float
    active_per_gpu_gb: float
    parameters: int
    active_parameters: int
    label: str


def weights_gb(params_b: float, bytes_per_parameter: float) -> float:
    """Weights in GB of ``params_b`` billion parameters."""
    return params_b * bytes_per_parameter


def place_weights(geometry: Geometry, parallel: Parallelism, precision: Precision | None = None) -> Weights:
    """Weights per GPU: what tensor parallelism slices, what it replicates, what experts divide.

    KV projections are replicated once there are more ranks than KV heads; latent projections and routers
    always are. Under expert parallelism the busiest rank holds ``ceil(experts / ranks)`` experts.
    """
    p = count_parameters(geometry)
    how = precision or precision_of(geometry)
    linear = how.other_bytes if how.experts_only else how.linear_bytes
    tp = parallel.tensor
    shared = (
        p.attention_sliced / tp
        + p.attention_kv / min(tp, geometry.kv_heads)
        + p.attention_replicated
        + p.dense / tp
    ) * linear + p.embedding / tp * how.other_bytes
    expert_share = 1 / tp
    if geometry.experts is not None and parallel.expert > 1:
        expert_share = math.ceil(geometry.experts.routed / parallel.expert) / geometry.experts.routed
    experts = p.experts * how.linear_bytes * expert_share
    active = p.experts_active * how.linear_bytes * expert_share
    stage = parallel.pipeline
    untouched = p.total - p.experts - p.embedding
    total = untouched * linear + p.embedding * how.other_bytes + p.experts * how.linear_bytes
    return Weights(
        total_gb=total / GB,
        per_gpu_gb=(shared + experts) / stage / GB,
        active_per_gpu_gb=(shared - p.lookup / tp * how.other_bytes + active) / stage / GB,
        parameters=p.total,
        active_parameters=p.active,
        label=how.label,
    )


def index_gb(index: Mapping[str, Any]) -> float:
    """Weights in GB as ``model.safetensors.index.json`` states them: exact, and better than any count.

    Raises:
        SizingError: ``metadata.total_size`` is missing.
    """
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if not isinstance(size, int | float) or size <= 0:
        raise SizingError("model.safetensors.index.json: metadata.total_size: missing")
    return float(size) / GB
