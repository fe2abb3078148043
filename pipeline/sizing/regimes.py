"""What-if regimes: where the prefix cache stops hitting, and where sessions fail.

The published hit rates are four different situations, not a spread around one: inside a turn, at a turn
boundary, after a model switch, and with context that is retrieved anew each time. The fleet is recomputed in
each; a plan that only holds in the first has session affinity as a hidden assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.sizing.speed import Ceiling, Machine, Slo, Work, replica_ceiling, timing
from pipeline.sizing.units import SizingError, ceil_div

#: Median hit rates by situation (arXiv 2608.00101; retrieved context arXiv 2608.15127).
HIT_BY_REGIME: Final[dict[str, float]] = {
    "within_turn": 0.98,
    "turn_boundary": 0.55,
    "model_switch": 0.08,
    "retrieved_context": 0.01,
}

#: Average context of sessions that fail over those that succeed (arXiv 2605.26297).
FAILING_CONTEXT: Final = 1.8

#: Published range of extra prefill work when a 142,000-token context misses (agents article).
PREFILL_WITHOUT_AFFINITY: Final = (20.0, 60.0)


def prefill_multiplier(hit_before: float, hit_after: float) -> float:
    """How many times the prefill work grows when the hit rate falls.

    Raises:
        SizingError: everything hit before, so there is no finite factor.
    """
    if hit_before >= 1:
        raise SizingError("with a hit rate of 1 nothing is prefilled: the factor is not finite")
    return (1 - hit_after) / (1 - hit_before)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The fleet under one regime. ``replicas`` is None where no number of replicas meets the target."""

    name: str
    hit: float
    context_factor: float
    prefill_multiplier: float | None
    requests_per_replica: int | None
    bound: str | None
    tpot_ms: float | None
    ttft_ms: float | None
    replicas: int | None
    gpus: int | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What every scenario is a variation of."""

    machine: Machine
    work: Work
    slo: Slo
    sequences: int
    vram_sequences: int
    gpus_per_replica: int
    spare_replicas: int


def _scenario(name: str, base: Baseline, hit: float, context_factor: float = 1.0) -> Scenario:
    work = Work(
        prompt_tokens=base.work.prompt_tokens * context_factor,
        prompt_tokens_p95=base.work.prompt_tokens_p95 * context_factor,
        hit=hit,
        output_tokens=base.work.output_tokens,
        kv_gb_per_gpu=base.work.kv_gb_per_gpu * context_factor,
    )
    fitting = int(base.vram_sequences / context_factor)
    multiplier = None
    if base.work.hit < 1:
        multiplier = prefill_multiplier(base.work.hit, hit) * context_factor
    try:
        if fitting < 1:
            raise SizingError(f"a context {context_factor:g} times as long does not fit a replica")
        ceiling: Ceiling = replica_ceiling(base.machine, work, base.slo, fitting)
    except SizingError as refused:
        alone = timing(base.machine, work, 1)
        return Scenario(
            name,
            hit,
            context_factor,
            multiplier,
            None,
            None,
            alone.tpot_ms,
            alone.ttft_ms,
            None,
            None,
            str(refused),
        )
    replicas = max(1, ceil_div(base.sequences, ceiling.requests))
    return Scenario(
        name=name,
        hit=hit,
        context_factor=context_factor,
        prefill_multiplier=multiplier,
        requests_per_replica=ceiling.requests,
        bound=ceiling.bound,
        tpot_ms=ceiling.at.tpot_ms,
        ttft_ms=ceiling.at.ttft_ms,
        replicas=replicas,
        gpus=(replicas + base.spare_replicas) * base.gpus_per_replica,
    )


def scenarios(base: Baseline) -> tuple[Scenario, ...]:
    """The planned regime, the four published ones, failing sessions, and affinity switched off.

    Affinity off is the published range of 20 to 60 times the prefill work of the planned regime, capped at
    prefilling everything.
    """
    rows = [_scenario("as_planned", base, base.work.hit)]
    rows += [_scenario(name, base, hit) for name, hit in HIT_BY_REGIME.items()]
    rows.append(_scenario("failing_sessions", base, base.work.hit, FAILING_CONTEXT))
    for factor in PREFILL_WITHOUT_AFFINITY:
        hit = max(0.0, 1 - factor * (1 - base.work.hit))
        rows.append(_scenario(f"affinity_off_x{factor:g}", base, hit))
    return tuple(rows)
