"""From people to concurrent calls: C = D x rho x A, by profile, and the quantile that is sized for.

D is active people (not seats). rho is the in-flight time of main-thread calls that did not fail, per
human-hour; A is all in-flight time over that. A published A estimates failures and subagents, so it may
multiply a published rho only: a measured rho comes with its own measured A or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.sizing.units import SizingError, positive, share

Tag = Literal["measured", "declared", "literature"]

HOURS_PER_WEEK: Final = 168

#: Published duty cycle and the factors of the published amplification (agents article, 12 September 2026).
PUBLISHED_DUTY: Final = 0.11
PUBLISHED_FAILING_TURNS: Final = 0.09
PUBLISHED_FAILING_FACTOR: Final = 4
PUBLISHED_SUBAGENT_SESSIONS: Final = 0.44
PUBLISHED_SUBAGENTS: Final = 4


@dataclass(frozen=True, slots=True)
class ProfileShare:
    """A published user profile: share of users and prompt tokens per turn (arXiv 2608.00101)."""

    name: str
    users: float
    tokens_per_turn: float


PUBLISHED_PROFILES: Final[tuple[ProfileShare, ...]] = (
    ProfileShare("readers", 0.417, 203_000),
    ProfileShare("coders", 0.304, 417_000),
    ProfileShare("terminal", 0.110, 213_000),
    ProfileShare("deep-loop", 0.092, 1_100_000),
    ProfileShare("chat-only", 0.076, 23_000),
)


def amplification(
    failing_turns: float, failing_factor: float, subagent_sessions: float, subagents: float
) -> float:
    """Published factors multiplied: (1 + failing x (factor - 1)) x (1 + sessions x (subagents - 1))."""
    share("failing_turns", failing_turns)
    share("subagent_sessions", subagent_sessions)
    return (1 + failing_turns * (failing_factor - 1)) * (1 + subagent_sessions * (subagents - 1))


def published_amplification() -> float:
    """The published factors at their published values (2.9464)."""
    return amplification(
        PUBLISHED_FAILING_TURNS, PUBLISHED_FAILING_FACTOR, PUBLISHED_SUBAGENT_SESSIONS, PUBLISHED_SUBAGENTS
    )


def duty_cycle(calls: float, output_tokens: float, tok_s: float, session_min: float) -> float:
    """Duty cycle from decode alone: calls x output tokens / speed, over the session's duration."""
    return calls * output_tokens / positive("tok_s", tok_s) / (positive("session_min", session_min) * 60)


@dataclass(frozen=True, slots=True)
class Duty:
    """rho and A with their tags. Construct through :func:`combine`, which refuses the mixture."""

    rho: float
    amplification: float
    rho_tag: Tag
    amplification_tag: Tag


def combine(rho: float | None, rho_tag: Tag, factor: float | None, factor_tag: Tag) -> Duty:
    """rho and A as one pair; what is absent is filled from the publication, if that is allowed.

    Raises:
        SizingError: a measured rho without a measured A (the published one would count failures and
            subagents a second time, or guess those of a population it does not describe), or the reverse.
    """
    if rho is None:
        rho, rho_tag = PUBLISHED_DUTY, "literature"
    if factor is None:
        factor, factor_tag = published_amplification(), "literature"
    if rho_tag == "measured" and factor_tag == "literature":
        raise SizingError(
            "people.amplification: a measured duty cycle needs the measured amplification of the same "
            "window; the published one must not be multiplied onto it"
        )
    if factor_tag == "measured" and rho_tag == "literature":
        raise SizingError(
            "people.duty_cycle: a measured amplification needs the measured duty cycle of the same window"
        )
    positive("people.duty_cycle", rho)
    if factor < 1:
        raise SizingError(f"people.amplification: at least 1 by definition, not {factor}")
    return Duty(rho, factor, rho_tag, factor_tag)


def concurrency(people: float, duty: float, factor: float) -> float:
    """Mean concurrent calls: D x rho x A."""
    return people * duty * factor


@dataclass(frozen=True, slots=True)
class Profile:
    """People of one kind: how many are active, and their duty cycle and amplification."""

    name: str
    people: float
    duty: Duty

    @property
    def mean(self) -> float:
        """Mean concurrent calls of this profile."""
        return concurrency(self.people, self.duty.rho, self.duty.amplification)


def published_split(people: float, duty: Duty) -> tuple[Profile, ...]:
    """People over the published profiles, duty in proportion to their prompt tokens per turn.

    The mean over the profiles equals ``duty.rho``: the split moves load between people, it adds none. For
    planning before anything was measured only.
    """
    users = sum(p.users for p in PUBLISHED_PROFILES)
    weight = sum(p.users * p.tokens_per_turn for p in PUBLISHED_PROFILES) / users
    return tuple(
        Profile(
            p.name,
            people * p.users / users,
            Duty(
                duty.rho * p.tokens_per_turn / weight,
                duty.amplification,
                "literature",
                duty.amplification_tag,
            ),
        )
        for p in PUBLISHED_PROFILES
    )


def mean_rps(people: float, calls: float, session_min: float) -> float:
    """Mean calls per second of ``people`` who each make ``calls`` in ``session_min`` minutes."""
    return people * calls / (positive("session_min", session_min) * 60)


def quantile(values: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile."""
    if not values:
        raise SizingError("a quantile of nothing")
    ordered = sorted(values)
    at = share("quantile", q) * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass(frozen=True, slots=True)
class Peak:
    """Concurrency to size for: the busiest hour of the week at a quantile, beside the mean."""

    value: float
    hour_of_week: int
    quantile: float
    mean: float
    hours_seen: int

    @property
    def over_mean(self) -> float | None:
        """Peak over mean; None when the mean is 0."""
        return self.value / self.mean if self.mean > 0 else None


def weekly_peak(samples: Mapping[int, Sequence[float]], q: float = 0.95) -> Peak:
    """The quantile of concurrency within each hour of the week, and the hour where it is highest.

    ``samples`` maps hour of week (0 = Monday 00:00 local) to concurrency samples of that hour, over as many
    weeks as there are. Hours never seen are not assumed to be idle; their number is reported.

    Raises:
        SizingError: no sample, or an hour outside 0..167.
    """
    best: tuple[float, int] | None = None
    total = 0.0
    count = 0
    for hour, values in sorted(samples.items()):
        if not 0 <= hour < HOURS_PER_WEEK:
            raise SizingError(f"hour of week {hour} lies outside 0..{HOURS_PER_WEEK - 1}")
        if not values:
            continue
        total += sum(values)
        count += len(values)
        here = quantile(values, q)
        if best is None or here > best[0]:
            best = (here, hour)
    if best is None:
        raise SizingError("no concurrency sample to size from")
    seen = sum(bool(values) for values in samples.values())
    return Peak(best[0], best[1], q, total / count, seen)


def poisson_quantile(mean: float, q: float) -> int:
    """Smallest n with P(N <= n) >= q for a Poisson count: the peak of independent people around a mean.

    A floor for planning before measuring: real people start work at the same hour, so measured peaks are
    higher than this.
    """
    if mean < 0 or not 0 <= q < 1:
        raise SizingError("mean must not be negative and the quantile must lie in 0..1")
    n, log_term = 0, -mean
    cumulative = math.exp(log_term)
    while cumulative < q:
        n += 1
        log_term += math.log(mean / n)
        cumulative += math.exp(log_term)
        if n > mean + 50 * math.sqrt(mean + 1):
            break
    return n
