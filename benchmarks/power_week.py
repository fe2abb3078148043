"""A simulated week of agents and boards whose agents per megawatt is known by construction.

The process: sessions arrive by Poisson with a lognormal effect of the day, weekends bring a quarter; each has
a few turns that meet the service level or not (with an effect of the day); some turns lack their times to
first token, some sessions go to an external provider. Boards draw idle power (with an effect of the day) and
a constant more for each agent in a turn; one board only idles. Sensors read with an error of their own, fall
silent, and restart their counters. Everything is drawn from one seed.

Truth is known twice: of the week that was drawn (:meth:`Week.realised`), and of the process that drew it
(:meth:`Process.value`), whose expectations are products of the means of independent draws.
:meth:`Week.direct` computes what the pipeline must find from sums over a grid of 300 s; :func:`write_lake`
gives the same week as raw records.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.power.interval import Bounds, Day, known_share

STEP_S = 300
MAX_GAP_S = 600.0
DAYS = 7
STEPS = DAYS * 86_400 // STEP_S
PER_DAY = 86_400 // STEP_S
MONDAY = datetime(2026, 3, 2)  # naive UTC
BUSY_BOARDS = 4
TTFT_S, SPEED_TOK_S = 5.0, 50.0


@dataclass(frozen=True)
class Process:
    """The means from which a week is drawn."""

    load_cv: float = 0.15
    sessions_per_weekday: float = 60.0
    weekend_share: float = 0.25
    external_share: float = 0.1
    miss_share: float = 0.1
    unknown_share: float = 0.02
    idle_w: float = 80.0
    watts_per_agent: float = 150.0
    accuracy_percent: float = 5.0
    gaps_per_week: float = 4.0
    resets_per_week: float = 2.0
    common_sensor_error: bool = False

    @property
    def own_hours(self) -> float:
        """Expected agent-hours in a turn on our boards, of one week."""
        sessions = self.sessions_per_weekday * (5 + 2 * self.weekend_share)
        return sessions * (1 - self.external_share) * 3.5 * 315 / 3600

    def joules(self, board: int) -> float:
        """Expected energy of one board in a week; the last board only idles."""
        own = self.own_hours * 3600 * self.watts_per_agent / BUSY_BOARDS
        return self.idle_w * DAYS * 86_400 + (own if board < BUSY_BOARDS else 0.0)

    def value(self, gains: tuple[float, ...] = (1.0,) * (BUSY_BOARDS + 1)) -> float:
        """Expected conformant agent-hours ÷ expected MWh, as sensors of *gains* read it."""
        energy = sum(self.joules(b) * g for b, g in enumerate(gains)) / 3.6e9
        return self.own_hours * (1 - self.miss_share) / energy


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a root agent, in seconds since Monday."""

    session: int
    start_s: float
    end_s: float
    missed: bool
    unknown: bool
    external: bool


@dataclass
class Direct:
    """What the pipeline must find, from counts on the grid."""

    days: list[tuple[float, float, float, float, bool]] = field(default_factory=list)
    bounds: Bounds | None = None

    @property
    def value(self) -> float:
        """Lower bound of agents per megawatt: unknown turns are misses."""
        return sum(d[0] for d in self.days) / sum(d[3] for d in self.days)

    def estimate(self) -> tuple[float, list[Day]]:
        """Unknown turns conform as often as the known ones of their day: value and days."""
        days = []
        for lower, upper, total, mwh, weekend in self.days:
            share = known_share(total, lower, upper)
            days.append(Day((share or 0.0) * total, mwh, weekend))
        return sum(d.numerator for d in days) / sum(d.denominator for d in days), days

    def lower_days(self) -> list[Day]:
        """Days of the lower bound."""
        return [Day(d[0], d[3], d[4]) for d in self.days]


class Week:
    """One drawn week."""

    def __init__(self, seed: int, process: Process) -> None:
        self.process = process
        rng = random.Random(seed)
        self.turns: list[Turn] = []
        self.idle_w: list[float] = []
        sigma2 = math.log(1 + process.load_cv**2)
        session = 0
        for day in range(DAYS):
            load = process.sessions_per_weekday * (process.weekend_share if day >= 5 else 1.0)
            load *= math.exp(rng.gauss(-sigma2 / 2, math.sqrt(sigma2)))
            miss = process.miss_share * rng.uniform(0.5, 1.5)
            self.idle_w.append(process.idle_w * rng.uniform(0.97, 1.03))
            for _ in range(_poisson(rng, load)):
                session += 1
                self._session(rng, session, day, miss)
        error = process.accuracy_percent / 100
        common = rng.uniform(-error, error)
        self.gains = tuple(
            1 + (common if process.common_sensor_error else rng.uniform(-error, error))
            for _ in range(BUSY_BOARDS + 1)
        )
        self.gaps = [self._gap(rng) for _ in range(_poisson(rng, process.gaps_per_week))]
        self.resets: list[tuple[int, int, float]] = []
        for _ in range(_poisson(rng, process.resets_per_week)):
            board, step, share = rng.randrange(BUSY_BOARDS + 1), rng.randrange(STEPS), rng.uniform(0.1, 0.9)
            # a counter that begins again within an hour of its last beginning may not fall, and is not seen
            if all(b != board or abs(s - step) > 12 for b, s, _ in self.resets):
                self.resets.append((board, step, share))

    def _session(self, rng: random.Random, session: int, day: int, miss: float) -> None:
        start = rng.uniform(8, 18) if rng.random() < 0.8 else rng.uniform(0, 21.5)
        at = day * 86_400 + start * 3600
        external = rng.random() < self.process.external_share
        for _ in range(rng.randint(1, 6)):
            length = _micro(rng.uniform(30, 600))
            at = _micro(at)
            missed, unknown = rng.random() < miss, rng.random() < self.process.unknown_share
            self.turns.append(Turn(session, at, _micro(at + length), missed, unknown, external))
            at += length + rng.uniform(10, 600)

    def _gap(self, rng: random.Random) -> tuple[int, int, int]:
        length = rng.randint(3, 24)  # samples inside are lost: longer than the longest gap
        return rng.randrange(BUSY_BOARDS + 1), (first := rng.randrange(1, STEPS - length)), first + length

    # -- truth

    def on_grid(self) -> list[float]:
        """Seconds of own agents in a turn in every step."""
        return self._grid(lambda t: True)

    def _grid(self, wanted: Callable[[Turn], bool]) -> list[float]:
        steps = [0.0] * (STEPS + 1)
        for turn in self.turns:
            if turn.external or not wanted(turn):
                continue
            first, last = int(turn.start_s // STEP_S), int(turn.end_s // STEP_S)
            if first == last:
                steps[first] += turn.end_s - turn.start_s
                continue
            steps[first] += (first + 1) * STEP_S - turn.start_s
            for step in range(first + 1, last):
                steps[step] += STEP_S
            steps[last] += turn.end_s - last * STEP_S
        return steps[:STEPS]

    def joules(self, board: int, active: list[float]) -> list[float]:
        """True energy of a board in every step."""
        more = self.process.watts_per_agent / BUSY_BOARDS if board < BUSY_BOARDS else 0.0
        return [self.idle_w[i // PER_DAY] * STEP_S + more * a for i, a in enumerate(active)]

    def realised(self) -> float:
        """Agents per megawatt of this week: true conformity, true energy, no gaps."""
        active = self.on_grid()
        hours = sum(t.end_s - t.start_s for t in self.turns if not t.external and not t.missed) / 3600
        return hours / sum(sum(self.joules(b, active)) for b in range(BUSY_BOARDS + 1)) * 3.6e9

    # -- what sensors and gateway tell

    def reset_in(self) -> dict[tuple[int, int], float]:
        """(board, step) -> share of the step that had passed when its counter began again."""
        silent = {(b, s) for b, first, last in self.gaps for s in range(first, last)}
        return {(b, s): share for b, s, share in self.resets if (b, s) not in silent}

    def direct(self) -> Direct:
        """Compute the daily pairs and the bounds from the grid."""
        active = self.on_grid()
        lower = self._grid(lambda t: not t.missed and not t.unknown)
        upper = self._grid(lambda t: not t.missed or t.unknown)
        silent = {s for _, first, last in self.gaps for s in range(first, last)}
        resets = self.reset_in()
        measured = [0.0] * STEPS
        low = high = 0.0
        for board in range(BUSY_BOARDS + 1):
            own_gap = {s for b, first, last in self.gaps if b == board for s in range(first, last)}
            read = [j * self.gains[board] for j in self.joules(board, active)]
            inside = 0.0
            watts: list[float] = []
            reset_steps = 0
            for step, joules in enumerate(read):
                if step in own_gap:
                    continue
                share = resets.get((board, step))
                if share is not None:
                    joules = self._after(board, step, share) * self.gains[board]
                    reset_steps += 1
                else:
                    watts.append(joules / STEP_S)
                inside += joules
                measured[step] += joules
            missing = len(own_gap) * STEP_S
            low += inside + missing * min(watts)
            high += inside + (missing + reset_steps * STEP_S) * max(watts)
        result = Direct()
        for day in range(DAYS):
            steps = [s for s in range(day * PER_DAY, (day + 1) * PER_DAY) if s not in silent]
            result.days.append(
                (
                    sum(lower[s] for s in steps) / 3600,
                    sum(upper[s] for s in steps) / 3600,
                    sum(active[s] for s in steps) / 3600,
                    sum(measured[s] for s in steps) / 3.6e9,
                    day >= 5,
                )
            )
        result.bounds = Bounds(
            hours_lower=sum(d[0] for d in result.days),
            hours_upper=sum(d[1] for d in result.days),
            joules=sum(d[3] for d in result.days) * 3.6e9,
            window_hours_lower=sum(lower) / 3600,
            window_hours_upper=sum(upper) / 3600,
            window_joules_low=low,
            window_joules_high=high,
            accuracy_percent=self.process.accuracy_percent,
        )
        return result

    def _after(self, board: int, step: int, share: float) -> float:
        """True energy of a board from the moment of a reset to the end of its step."""
        begin, end = (step + share) * STEP_S, (step + 1) * STEP_S
        active = sum(
            max(0.0, min(t.end_s, end) - max(t.start_s, begin)) for t in self.turns if not t.external
        )
        more = self.process.watts_per_agent / BUSY_BOARDS if board < BUSY_BOARDS else 0.0
        return self.idle_w[step // PER_DAY] * (end - begin) + more * active


def _poisson(rng: random.Random, mean: float) -> int:
    """Knuth's method; means here stay far below where it loses precision."""
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count


def _micro(seconds: float) -> float:
    return round(seconds * 1e6) / 1e6


# -- the same week as raw records


def settings() -> Any:
    """Return the conventions the week is judged by."""
    from pipeline.settings import PowerSettings, Settings, SloTier

    return Settings(
        slo_tiers=[SloTier(ttft_s=TTFT_S, speed_tok_s=SPEED_TOK_S)],
        power=PowerSettings(max_gap_s=MAX_GAP_S, unseen_ms=0),
    )


def figure(week: Week, lake: Path) -> dict[str, Any]:
    """Write the week into *lake*, build it and return the agents-per-megawatt figure."""
    from pipeline import figures, run

    write_lake(week, lake)
    run.build(lake, settings(), marts=False)
    computed = figures.compute(lake, settings(), MONDAY, MONDAY + timedelta(days=DAYS))
    return computed.figures["agents_per_megawatt"]


def write_lake(week: Week, lake: Path) -> None:
    """Write events and energy counters of the week as raw Parquet."""
    import duckdb

    from pipeline.schema import SCHEMAS

    con = duckdb.connect()
    for table, records, day_of in (
        ("raw/events", list(events(week)), lambda r: _moment(r["started_us"] / 1e6)),
        ("raw/metrics", list(samples(week)), lambda r: datetime.fromisoformat(r["ts"])),
    ):
        days: dict[str, list[str]] = {}
        for record in records:
            days.setdefault(day_of(record).date().isoformat(), []).append(json.dumps(record))
        spec = ", ".join(f'"{c}": "{kind}"' for c, kind in SCHEMAS[table].items())
        for day, lines in days.items():
            folder = lake / table / f"date={day}"
            folder.mkdir(parents=True, exist_ok=True)
            source = folder / ".part.jsonl"
            source.write_text("\n".join(lines), encoding="utf-8")
            con.execute(
                f"COPY (SELECT * FROM read_json('{source}', format='newline_delimited', columns={{{spec}}})) "
                f"TO '{folder / 'part.parquet'}' (FORMAT parquet)"
            )
            source.unlink()
    con.close()


def events(week: Week) -> Iterator[dict[str, Any]]:
    """Yield the calls: one to three a turn, back to back or with a tool gap between them."""
    for number, turn in enumerate(week.turns):
        length = turn.end_s - turn.start_s
        count = 1 + number % 3
        cuts = [_micro(turn.start_s + length * i / count) for i in range(count)] + [turn.end_s]
        for call in range(count):
            last = call == count - 1
            begin, end = cuts[call], cuts[call + 1] - (0.0 if last else _micro(min(2.0, length / 20)))
            late = call == 0 and turn.missed
            record: dict[str, Any] = {
                "schema": 1,
                "event_id": f"{number}-{call}",
                "stage": "final",
                "outcome": "success",
                "started_us": _us(begin),
                "ended_us": _us(end),
                "duration_ms": (_us(end) - _us(begin)) / 1e3,
                "ttft_ms": TTFT_S * 1000 + 1000 if late else 1000.0,
                "session_key": f"s{turn.session}",
                "session_evidence": "E1",
                "agent_id": "main",
                "agent_kind": "main",
                "turn_id": f"t{number}",
                "turn_evidence": "E1",
                "initiator": "agent" if call else "user",
                "route": "chat",
                "stream": True,
                "model_group": "coder",
                "provider": "anthropic" if turn.external else "hosted_vllm",
                "input_tokens": 5000,
                "cached_tokens": 4000,
                "output_tokens": 2 + math.ceil(1.3 * SPEED_TOK_S * (end - begin)),
                "usage_source": "provider",
                "attempts": 1,
                "collected_at": _moment(_us(end) / 1e6).isoformat(),
                "stream_id": "1-0",
            }
            if turn.unknown and call == 0:
                del record["ttft_ms"]
            yield record


def samples(week: Week) -> Iterator[dict[str, Any]]:
    """Yield energy counters in mJ every step: board 0 as three slices, board 1 under two pods in turn."""
    active = week.on_grid()
    resets = week.reset_in()
    for board in range(BUSY_BOARDS + 1):
        gone = {k for b, first, last in week.gaps if b == board for k in range(first + 1, last)}
        total = 1e6 * (board + 1)
        for step, joules in enumerate([0.0, *week.joules(board, active)]):
            share = resets.get((board, step - 1))
            total = (
                week.gains[board] * week._after(board, step - 1, share)
                if share is not None
                else total + joules * week.gains[board]
            )
            if step in gone:
                continue
            labels = {"UUID": f"GPU-{board}", "gpu": str(board), "modelName": "NVIDIA H100 80GB HBM3"}
            if board == 1:
                labels["pod"] = "first" if step < STEPS // 2 else "second"
            for part in ("1", "2", "3") if board == 0 else ("",):
                yield {
                    "ts": (MONDAY + timedelta(seconds=step * STEP_S)).isoformat(),
                    "target": "node-1",
                    "name": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                    "labels": json.dumps(labels | ({"GPU_I_ID": part} if part else {}), sort_keys=True),
                    "value": total * 1e3,
                    "kind": "untyped",
                }


def _us(seconds: float) -> int:
    return round((MONDAY.replace(tzinfo=UTC).timestamp() + seconds) * 1e6)


def _moment(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC).replace(tzinfo=None)
