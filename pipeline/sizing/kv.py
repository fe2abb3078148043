"""The KV cache: bytes per token and per sequence, the budget on a GPU, and how many sequences fit.

Capacity is counted per GPU, not per replica, because a rank with a replicated KV head or a latent cache
holds as much as its neighbours do and adds nothing to the total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from pipeline.sizing.geometry import Geometry
from pipeline.sizing.units import GB, GIB, SizingError, exact, floor_div, plain, positive
from pipeline.sizing.weights import Parallelism

#: Tokens per block of the paged cache; a sequence occupies whole blocks (vLLM default).
BLOCK_TOKENS = 16


def bytes_per_token(layers: int, kv_heads: int, head_dim: int, element_bytes: float) -> Fraction:
    """KV bytes of one token: 2 (keys and values) x layers x KV heads x head dimension x element bytes."""
    for name, value in (
        ("layers", layers),
        ("kv_heads", kv_heads),
        ("head_dim", head_dim),
        ("bytes", element_bytes),
    ):
        positive(name, float(value))
    return 2 * exact(layers) * exact(kv_heads) * exact(head_dim) * exact(element_bytes)


def sequence_gib(kv_bytes_per_token: float | Fraction, context_tokens: float) -> float:
    """GiB of KV cache of one sequence with ``context_tokens`` live tokens."""
    return float(exact(kv_bytes_per_token) * exact(context_tokens) / GIB)


def max_sequences(kv_bytes: float, context_tokens: float, kv_bytes_per_token: float | Fraction) -> int:
    """Whole sequences of ``context_tokens`` that fit into ``kv_bytes``."""
    return floor_div(kv_bytes, exact(kv_bytes_per_token) * exact(context_tokens))


def live_tokens(kv_bytes: float, kv_bytes_per_token: float | Fraction) -> int:
    """Whole tokens that fit into ``kv_bytes``."""
    return floor_div(kv_bytes, kv_bytes_per_token)


@dataclass(frozen=True, slots=True)
class KvBudget:
    """Space for KV cache, decimal GB, on one GPU and over the tensor-parallel group."""

    per_gpu_gb: int | float
    replica_gb: int | float


def budget(
    gpu_gb: float,
    weights_per_gpu_gb: float | Fraction,
    *,
    gpu_memory_utilization: float = 1.0,
    activations_gb: float = 0.0,
    overhead_gb: float = 0.0,
    gpus: int = 1,
) -> KvBudget:
    """KV budget of a GPU: usable memory less weights, activations and overhead (all decimal GB).

    ``gpu_memory_utilization`` is vLLM's setting of that name: the share of the board the engine may take.

    Raises:
        SizingError: nothing is left for the cache; the message says by how much.
    """
    usable = exact(gpu_gb) * exact(gpu_memory_utilization)
    left = usable - exact(weights_per_gpu_gb) - exact(activations_gb) - exact(overhead_gb)
    if left <= 0:
        raise SizingError(
            f"no room for KV cache: {float(usable):.1f} GB usable, "
            f"{float(exact(weights_per_gpu_gb)):.1f} GB weights, "
            f"{activations_gb + overhead_gb:.1f} GB activations and overhead"
        )
    return KvBudget(plain(left), plain(left * gpus))


@dataclass(frozen=True, slots=True)
class SequenceCost:
    """Bytes one sequence takes on one GPU: a part that grows with the context and a constant part."""

    per_token: Fraction
    window_per_token: Fraction
    window_tokens: int
    constant: Fraction

    def bytes_at(self, context_tokens: int, block: int = BLOCK_TOKENS) -> Fraction:
        """Bytes at a context length, in whole blocks; windowed layers stop growing at their window."""
        if context_tokens < 0:
            raise SizingError("context must not be negative")
        whole = math.ceil(context_tokens / block) * block
        windowed = min(whole, math.ceil(self.window_tokens / block) * block) if self.window_tokens else 0
        return self.per_token * whole + self.window_per_token * windowed + self.constant

    def gib_at(self, context_tokens: int, block: int = BLOCK_TOKENS) -> float:
        """GiB at a context length."""
        return float(self.bytes_at(context_tokens, block) / GIB)


def sequence_cost(
    geometry: Geometry,
    element_bytes: float,
    parallel: Parallelism | None = None,
    *,
    state_bytes: float = 2.0,
) -> SequenceCost:
    """What a sequence costs on one GPU of a replica.

    KV heads are divided over tensor ranks and replicated once there are more ranks than heads; a latent
    cache (MLA) is one vector on every rank; pipeline stages hold their own layers only. A sparse indexer
    keeps one byte per dimension and a 4-byte scale per 128 of them. Recurrent state keeps ``state_bytes``
    per element whatever the KV type.
    """
    split = parallel or Parallelism()
    element = exact(element_bytes)
    stage = split.pipeline
    shared = geometry.shared_kv_layers
    full, window = geometry.count("full"), geometry.count("window")
    if shared:
        # Layers at the end reuse the cache of an earlier one of their kind.
        own = geometry.layers[: len(geometry.layers) - shared]
        full, window = own.count("full"), own.count("window")
    constant = (
        exact(geometry.count("recurrent") * geometry.state_elements)
        * exact(state_bytes)
        / split.tensor
        / stage
    )
    if geometry.latent is not None:
        mla = geometry.latent
        per_layer = exact(mla.kv_rank + mla.rope_dim) * element
        if mla.indexer_dim:
            per_layer += mla.indexer_dim + exact(4) * math.ceil(mla.indexer_dim / 128)
        return SequenceCost(
            per_layer * math.ceil(full / stage),
            per_layer * math.ceil(window / stage),
            geometry.window or 0,
            constant,
        )

    def per_layer_bytes(heads: int, dim: int) -> Fraction:
        return 2 * exact(math.ceil(heads / split.tensor)) * dim * element

    local = per_layer_bytes(geometry.kv_heads, geometry.head_dim)
    everywhere = per_layer_bytes(
        geometry.global_kv_heads or geometry.kv_heads, geometry.global_head_dim or geometry.head_dim
    )
    return SequenceCost(
        everywhere * math.ceil(full / stage),
        local * math.ceil(window / stage),
        geometry.window or 0,
        constant,
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """How many sequences fit on a replica at three context lengths, and the setting that follows."""

    at_p50: int
    at_p95: int
    at_max: int
    gib_at_p50: float
    gib_at_p95: float
    gib_at_max: float
    max_num_seqs: int
    live_tokens: int


def fit(kv_per_gpu_gb: float, cost: SequenceCost, *, p50: int, p95: int, longest: int) -> Fit:
    """Sequences that fit at the median, the 95th percentile and the longest context.

    ``max_num_seqs`` is the fit at P95: at the median the scheduler would preempt in every busy hour, at the
    maximum the card would stand half empty.

    Raises:
        SizingError: not even one sequence of the longest context fits.
    """
    room = exact(kv_per_gpu_gb) * GB

    def sequences(context: int) -> int:
        return floor_div(room, cost.bytes_at(context)) if context else 0

    at_max = sequences(longest)
    if at_max < 1:
        raise SizingError(
            f"one sequence of {longest} tokens needs {cost.gib_at(longest):.1f} GiB on each GPU, "
            f"{float(room / GIB):.1f} GiB are left: more tensor parallelism or a smaller KV type is needed"
        )
    growing = cost.per_token or cost.window_per_token
    return Fit(
        at_p50=sequences(p50),
        at_p95=sequences(p95),
        at_max=at_max,
        gib_at_p50=cost.gib_at(p50),
        gib_at_p95=cost.gib_at(p95),
        gib_at_max=cost.gib_at(longest),
        max_num_seqs=max(1, sequences(p95)),
        live_tokens=floor_div(room, growing) if growing else 0,
    )
