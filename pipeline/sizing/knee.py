"""The knee of a load sweep: the highest load that still keeps the declared SLO.

Throughput keeps rising after the target broke, so the capacity of a deployment is the goodput (tokens per
second of requests within the SLO) of the last round where goodput is still close to throughput. A sweep that
never broke has not shown a knee and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from pipeline.sizing.tco import Money, per_million_tokens
from pipeline.sizing.units import SizingError

#: A round whose goodput is below this share of its throughput is past the knee.
GOODPUT_SHARE_MIN = 0.95


class NoKnee(SizingError):
    """The sweep does not contain a knee; the message says what it lacks."""


@dataclass(frozen=True, slots=True)
class KneeSlo:
    """Declared targets of a sweep. ``percentile`` applies to time to first token; None: no such target."""

    ttft_ms: float | None = None
    ttft_percentile: str = "p99"
    itl_ms: float | None = None
    itl_percentile: str = "p95"
    goodput_share_min: float = GOODPUT_SHARE_MIN
    error_share_max: float = 0.001

    def describe(self) -> str:
        """The SLO as a reader would write it; a capacity without it means nothing."""
        parts = []
        if self.ttft_ms is not None:
            parts.append(f"TTFT {self.ttft_percentile.upper()} < {self.ttft_ms:g} ms")
        if self.itl_ms is not None:
            parts.append(f"ITL {self.itl_percentile.upper()} < {self.itl_ms:g} ms")
        parts.append(f"goodput >= {self.goodput_share_min:.0%} of throughput")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a sweep. ``rate`` is requests per second offered or, where only that is known, achieved.

    ``ttft_ms`` and ``itl_ms`` are at the percentiles of the SLO; None: the tool did not report them.
    ``goodput_source`` says how goodput was obtained: requests | reported | percentiles | given.
    ``started_s`` and ``ended_s`` are epoch seconds, for pairing with power. ``offered``: the rate was set by
    the tool; ``saturating``: the tool sent as fast as it could.
    """

    rate: float
    ttft_ms: float | None
    itl_ms: float | None
    throughput_tok_s: float
    goodput_tok_s: float
    error_share: float = 0.0
    concurrency: float | None = None
    goodput_source: str = "given"
    started_s: float | None = None
    ended_s: float | None = None
    saturating: bool = False
    offered: bool = True

    @property
    def goodput_share(self) -> float:
        """Goodput over throughput; 0 when nothing was produced."""
        return self.goodput_tok_s / self.throughput_tok_s if self.throughput_tok_s > 0 else 0.0


def breaks(round_: Round, slo: KneeSlo) -> tuple[str, ...]:
    """Every target that a round misses; empty when it keeps them all.

    Raises:
        SizingError: a target is declared that the round carries no figure for.
    """
    missed: list[str] = []
    if slo.ttft_ms is not None:
        if round_.ttft_ms is None:
            raise SizingError(f"the sweep reports no TTFT {slo.ttft_percentile} at {round_.rate:g} req/s")
        if round_.ttft_ms >= slo.ttft_ms:
            missed.append(f"TTFT {slo.ttft_percentile.upper()} {round_.ttft_ms:.0f} ms")
    if slo.itl_ms is not None:
        if round_.itl_ms is None:
            raise SizingError(f"the sweep reports no ITL {slo.itl_percentile} at {round_.rate:g} req/s")
        if round_.itl_ms >= slo.itl_ms:
            missed.append(f"ITL {slo.itl_percentile.upper()} {round_.itl_ms:.0f} ms")
    if round_.goodput_share < slo.goodput_share_min:
        missed.append(f"goodput {round_.goodput_share:.0%} of throughput")
    if round_.error_share > slo.error_share_max:
        missed.append(f"errors {round_.error_share:.2%}")
    return tuple(missed)


@dataclass(frozen=True, slots=True)
class Knee:
    """Last round that keeps the SLO, and the first that breaks it, with what broke."""

    at: Round
    broke_at: Round
    broke: tuple[str, ...]
    slo: str
    rounds: int

    @property
    def goodput_tok_s(self) -> float:
        """Capacity to size with."""
        return self.at.goodput_tok_s


def _by_load(rounds: Sequence[Round]) -> list[Round]:
    """Rounds by increasing load; in a closed loop the rate falls past the knee, so concurrency orders."""
    closed = not any(r.offered for r in rounds) and all(r.concurrency is not None for r in rounds)

    def load(r: Round) -> tuple[bool, float, float]:
        return r.saturating, (r.concurrency or 0.0) if closed else r.rate, r.throughput_tok_s

    return sorted(rounds, key=load)


def find_knee(rounds: Sequence[Round], slo: KneeSlo) -> Knee:
    """The knee under a declared SLO.

    Rounds are taken in order of load; a round that passes after one that broke is noise and does not count.

    Raises:
        NoKnee: too few rounds, the first already breaks, or none does (extend the sweep).
        SizingError: no target was declared.
    """
    if slo.ttft_ms is None and slo.itl_ms is None:
        raise SizingError("declare a TTFT or an ITL target: a capacity without its SLO means nothing")
    if len(rounds) < 2:
        raise NoKnee(f"{len(rounds)} round: a sweep needs at least two")
    ordered = _by_load(rounds)
    last: Round | None = None
    for round_ in ordered:
        missed = breaks(round_, slo)
        if missed:
            if last is None:
                raise NoKnee(
                    f"the lowest load, {round_.rate:g} req/s, already misses the SLO ({', '.join(missed)}): "
                    "sweep lower or relax the target"
                )
            return Knee(last, round_, missed, slo.describe(), len(ordered))
        last = round_
    raise NoKnee(
        f"the sweep never broke: {ordered[-1].rate:g} req/s still keeps {slo.describe()}; "
        "extend it until a target is missed"
    )


@dataclass(frozen=True, slots=True)
class KneeComparison:
    """Two knees under the same SLO: change of goodput and of load, and whether it is a regression."""

    baseline_goodput_tok_s: float
    candidate_goodput_tok_s: float
    goodput_change: float
    rate_change: float
    threshold: float
    regressed: bool
    slo: str


def compare_knees(baseline: Knee, candidate: Knee, threshold: float = 0.05) -> KneeComparison:
    """Candidate against baseline; a drop of goodput by more than ``threshold`` is a regression.

    Raises:
        SizingError: the two were found under different SLOs.
    """
    if baseline.slo != candidate.slo:
        raise SizingError(f"the sweeps were judged under different SLOs: {baseline.slo} / {candidate.slo}")
    change = candidate.goodput_tok_s / baseline.goodput_tok_s - 1
    return KneeComparison(
        baseline.goodput_tok_s,
        candidate.goodput_tok_s,
        change,
        candidate.at.rate / baseline.at.rate - 1,
        threshold,
        change < -threshold,
        baseline.slo,
    )


def eur_per_million_tokens(replica_hour: Money, knee_goodput_tok_s: float) -> Decimal:
    """Cost of a million tokens at the knee: replica cost per hour over goodput."""
    return per_million_tokens(replica_hour, knee_goodput_tok_s)


@dataclass(frozen=True, slots=True)
class Energy:
    """Power of the same window as a round, and joules per token within the SLO."""

    mean_w: float
    seconds_covered: float
    coverage: float
    joules_per_token: float
    boundary: str


def pair_power(
    round_: Round, samples: Sequence[tuple[float, float]], *, boundary: str, max_gap_s: float = 3.0
) -> Energy:
    """Energy per token of a round from power samples (epoch s, W) inside its window.

    Trapezoids between samples at most ``max_gap_s`` apart; what is not covered is reported, not filled.

    Raises:
        SizingError: the round has no window, or the samples cover less than 90 % of it.
    """
    if round_.started_s is None or round_.ended_s is None:
        raise SizingError("the round carries no start and end instants: power cannot be paired")
    inside = sorted((t, w) for t, w in samples if round_.started_s <= t <= round_.ended_s)
    joules = seconds = 0.0
    for (t0, w0), (t1, w1) in pairwise(inside):
        if t1 - t0 <= max_gap_s:
            joules += (w0 + w1) / 2 * (t1 - t0)
            seconds += t1 - t0
    duration = round_.ended_s - round_.started_s
    coverage = seconds / duration if duration > 0 else 0.0
    if coverage < 0.9:
        raise SizingError(
            f"power samples cover {coverage:.0%} of the round: at least 90 % of the same window is needed"
        )
    if round_.goodput_tok_s <= 0:
        raise SizingError("no token of the round was within the SLO: joules per token is not defined")
    mean = joules / seconds
    return Energy(mean, seconds, coverage, mean / round_.goodput_tok_s, boundary)
