"""The conventions that the models need, as parameters and small relations.

:class:`Conventions` names what is read from the pipeline's settings; :func:`bind` turns it into the ``prm_…``
relations and ``$…`` parameters. The calendar is made here, because days of a business time zone have 23 or
25 hours twice a year and the models stay free of time zones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import duckdb


class Tier(Protocol):
    """A service level of a turn."""

    @property
    def ttft_s(self) -> float:
        """Longest time to first token."""

    @property
    def speed_tok_s(self) -> float:
        """Slowest generation."""


class Source(Protocol):
    """One measured power (gauge) or energy (counter) series."""

    @property
    def name(self) -> str:
        """Name of the source in reports."""

    @property
    def metric(self) -> str:
        """Name of the exported series."""

    @property
    def kind(self) -> str:
        """``gauge`` or ``counter``."""

    @property
    def scope(self) -> str:
        """Power boundary: board, node, rack or facility."""

    @property
    def factor(self) -> float:
        """Factor from the exported number to watts or joules."""

    @property
    def identity_labels(self) -> Sequence[str]:
        """Labels that tell devices apart."""

    @property
    def match_labels(self) -> Mapping[str, str]:
        """Labels that a series must carry to count."""

    @property
    def accuracy_percent(self) -> float | None:
        """Accuracy of the sensor, as ± per cent."""

    @property
    def synthetic(self) -> bool:
        """Made up, not measured."""

    @property
    def devices(self) -> int | None:
        """How many devices it must show; None: unknown."""


class Pool(Protocol):
    """Devices that serve model groups together, for a while or always."""

    @property
    def name(self) -> str:
        """Name of the pool; several entries of one name are its validity intervals."""

    @property
    def model_groups(self) -> Sequence[str]:
        """Model groups that it serves."""

    @property
    def targets(self) -> Sequence[str]:
        """Scrape targets of its devices; none: any."""

    @property
    def devices(self) -> Sequence[str]:
        """Patterns of its devices' identities; none: any."""

    @property
    def match_labels(self) -> Mapping[str, str]:
        """Labels that its series carry."""

    @property
    def since(self) -> datetime | None:
        """From when on, naive UTC."""

    @property
    def until(self) -> datetime | None:
        """Until when, not included, naive UTC."""

    @property
    def split(self) -> str:
        """How its energy is split over several model groups: none, llm_active or shares."""

    @property
    def shares(self) -> Mapping[str, float]:
        """Model group to its declared share of the energy."""


class Provisioned(Protocol):
    """Power that was paid for, not measured."""

    @property
    def name(self) -> str:
        """What it is."""

    @property
    def watts(self) -> float:
        """Watts of one."""

    @property
    def count(self) -> int:
        """How many."""

    @property
    def source(self) -> str:
        """Where the number comes from."""


class Power(Protocol):
    """Where measured power comes from, and what it serves."""

    @property
    def sources(self) -> Sequence[Source]:
        """Declared series; none means the default board exporter."""

    @property
    def max_gap_s(self) -> float:
        """Longest time between two samples that still counts as measured."""

    @property
    def pue(self) -> float | None:
        """Facility over rack."""

    @property
    def pue_source(self) -> str | None:
        """Where the PUE comes from."""

    @property
    def presets(self) -> Sequence[str]:
        """Usual exporters to read beside the declared series."""

    @property
    def pools(self) -> Sequence[Pool]:
        """Which devices serve which model groups; none: every device serves every group of ours."""

    @property
    def provisioned(self) -> Sequence[Provisioned]:
        """Declared power, for a figure of its own."""

    @property
    def gpu_model(self) -> str | None:
        """Name of the accelerator, where its exporter does not tell."""

    @property
    def min_coverage(self) -> float:
        """Least measured share of the window."""

    @property
    def unseen_ms(self) -> float:
        """Longest time between the gateway's instant of an end of a call and the client's or the engine's."""

    @property
    def capacity_share(self) -> float:
        """Share of the agent time that must conform for a load to count as carried."""

    @property
    def model_groups(self) -> Mapping[str, Sequence[str]]:
        """Model group to the scrape targets whose power serves it."""

    @property
    def external_model_groups(self) -> Sequence[str]:
        """Model groups without a power meter of ours."""

    @property
    def external_providers(self) -> Sequence[str]:
        """Providers without a power meter of ours."""


class Conventions(Protocol):
    """What the figures need of the pipeline's settings."""

    @property
    def business_time_zone(self) -> str:
        """IANA zone of business days."""

    @property
    def idle_caps_s(self) -> Sequence[float]:
        """Caps g of a human-hour."""

    @property
    def tool_caps_s(self) -> Sequence[float | None]:
        """Caps on tool gaps; None is no cap."""

    @property
    def visit_gap_s(self) -> float:
        """Idle time that ends a visit."""

    @property
    def retentions_s(self) -> Sequence[float]:
        """Retentions of the potential prefix; infinity included."""

    @property
    def slo_tiers(self) -> Sequence[Tier]:
        """Service levels."""

    @property
    def service_keys(self) -> Sequence[str]:
        """Key aliases or hashes of unattended work."""

    @property
    def power(self) -> Power:
        """Power sources."""


#: Providers that run on other people's power, unless a model group of theirs is mapped to our targets.
HOSTED_PROVIDERS: Final = (
    "anthropic", "openai", "azure", "azure_ai", "bedrock", "bedrock_converse", "vertex_ai", "gemini",
    "cohere", "mistral", "groq", "deepseek", "together_ai", "fireworks_ai", "openrouter", "xai",
    "perplexity", "cerebras", "sambanova", "github_copilot", "databricks", "watsonx", "replicate",
    "nvidia_nim", "chatgpt",
)  # fmt: skip


#: Upper ends of prompt sizes, tokens: token counting takes a step at every 40,000 of them.
PROMPT_SIZES: Final = {
    "≤8K": 8_000.0, "8–40K": 40_000.0, "40–80K": 80_000.0, "80–120K": 120_000.0, "120–200K": 200_000.0,
    ">200K": math.inf,
}  # fmt: skip
#: Upper ends of tool-catalogue sizes, bytes.
CATALOGUE_SIZES: Final = {
    "none": 0.0, "≤16 kB": 16_000.0, "16–64 kB": 64_000.0, "64–256 kB": 256_000.0, ">256 kB": math.inf,
}  # fmt: skip
#: Input tokens a turn below which a visit is of a profile: geometric means of the published medians of
#: readers, coders and deep loops (203,000, 417,000 and 1,100,000; arXiv 2608.00101).
PROFILE_TOKENS: Final = {"readers": 291_000.0, "coders": 677_000.0, "deep-loop": math.inf}
#: Calls a turn from which on a visit is a deep loop: 1,100,000 tokens a turn ÷ a median prompt of 68,000.
DEEP_LOOP_CALLS: Final = 16.0


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open stretch of naive UTC time."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.start).total_seconds()


def retention_label(seconds: float) -> str:
    """Name a retention: ``inf``, ``3600``, ``300``."""
    return "inf" if math.isinf(seconds) else f"{seconds:g}"


def cap_label(seconds: float | None) -> str:
    """Name a cap on tool gaps: ``60 s`` … ``none``."""
    return "none" if seconds is None else f"{seconds:g} s"


def tier_label(tier: Tier) -> str:
    """Name a service level by its two bounds."""
    return f"{tier.speed_tok_s:g} tok/s, {tier.ttft_s:g} s"


def business_days(window: Window, zone: ZoneInfo) -> list[tuple[date, datetime, datetime]]:
    """Return the days of *zone* that overlap *window*, with their bounds in naive UTC."""
    day = window.start.replace(tzinfo=UTC).astimezone(zone).date() - timedelta(days=1)
    days: list[tuple[date, datetime, datetime]] = []
    while True:
        start, end = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
        if start >= window.end:
            return days
        if end > window.start:
            days.append((day, start, end))
        day += timedelta(days=1)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC).replace(tzinfo=None)


def powered_groups(power: Power) -> list[str]:
    """Return the model groups that are declared to run on power that we measure."""
    return sorted(set(power.model_groups) | {g for pool in power.pools for g in pool.model_groups})


def bind_conventions(con: duckdb.DuckDBPyConnection, settings: Conventions) -> dict[str, Any]:
    """Create the relations that do not depend on a window; return the parameters."""
    design = {"inf": None, "3600": 3600.0, "300": 300.0}  # columns of fct_call name these
    chosen = {retention_label(s): None if math.isinf(s) else float(s) for s in settings.retentions_s}
    retentions = design | chosen
    relation(
        con,
        "prm_retention",
        label=("VARCHAR", list(retentions)),
        seconds=("DOUBLE", list(retentions.values())),
    )
    relation(con, "prm_service_key", value=("VARCHAR", sorted(set(settings.service_keys))))
    relation(con, "prm_idle_cap", seconds=("DOUBLE", sorted({float(s) for s in settings.idle_caps_s})))
    caps = list(dict.fromkeys(settings.tool_caps_s))
    relation(con, "prm_tool_cap", label=("VARCHAR", [cap_label(c) for c in caps]), seconds=("DOUBLE", caps))
    tiers = list(settings.slo_tiers)
    relation(
        con,
        "prm_slo_tier",
        tier=("VARCHAR", [tier_label(t) for t in tiers]),
        ttft_s=("DOUBLE", [float(t.ttft_s) for t in tiers]),
        speed_tok_s=("DOUBLE", [float(t.speed_tok_s) for t in tiers]),
    )
    power = settings.power
    providers = sorted(set(power.external_providers) or set(HOSTED_PROVIDERS))
    relation(con, "prm_external_provider", provider=("VARCHAR", providers))
    relation(con, "prm_external_group", model_group=("VARCHAR", sorted(set(power.external_model_groups))))
    relation(con, "prm_powered_group", model_group=("VARCHAR", powered_groups(power)))
    for table, sizes in (("prm_prompt_size", PROMPT_SIZES), ("prm_catalogue_size", CATALOGUE_SIZES)):
        bounds = [-1.0 if table == "prm_catalogue_size" else 0.0, *sizes.values()]
        relation(
            con,
            table,
            label=("VARCHAR", list(sizes)),
            above=("DOUBLE", bounds[:-1]),
            up_to=("DOUBLE", bounds[1:]),
        )
    relation(
        con,
        "prm_profile",
        profile=("VARCHAR", list(PROFILE_TOKENS)),
        below_tokens=("DOUBLE", list(PROFILE_TOKENS.values())),
    )
    visit_gap_s = float(settings.visit_gap_s)
    return {
        "visit_gap_s": visit_gap_s,
        "burst_gap_s": min([visit_gap_s, *(float(s) for s in settings.idle_caps_s)]),
        "max_gap_s": float(power.max_gap_s),
        "deep_loop_calls": DEEP_LOOP_CALLS,
        "unseen_s": power.unseen_ms / 1e3,
    }


def bind_window(con: duckdb.DuckDBPyConnection, settings: Conventions, window: Window) -> dict[str, Any]:
    """Create the calendar of *window*; return its parameters."""
    zone = ZoneInfo(settings.business_time_zone)
    days = business_days(window, zone)
    relation(
        con,
        "prm_business_day",
        business_day=("DATE", [d[0] for d in days]),
        start_at=("TIMESTAMP", [d[1] for d in days]),
        end_at=("TIMESTAMP", [d[2] for d in days]),
    )
    hours = []
    hour = window.start.replace(minute=0, second=0, microsecond=0)
    while hour < window.end:
        local = hour.replace(tzinfo=UTC).astimezone(zone).date()
        following = hour + timedelta(hours=1)
        hours.append(
            (hour, max(hour, window.start), min(following, window.end), local, int(local.weekday() >= 5))
        )
        hour = following
    names = (("hour_start", "TIMESTAMP"), ("start_at", "TIMESTAMP"), ("end_at", "TIMESTAMP"),
             ("business_day", "DATE"), ("is_weekend", "INTEGER"))  # fmt: skip
    relation(con, "prm_hour", **{n: (kind, [h[i] for h in hours]) for i, (n, kind) in enumerate(names)})
    margin = timedelta(seconds=float(settings.power.max_gap_s))
    return {
        "window_start": window.start,
        "window_end": window.end,
        "metric_start": window.start - margin,
        "metric_end": window.end + margin,
    }


def relation(con: duckdb.DuckDBPyConnection, table: str, /, **columns: tuple[str, Sequence[object]]) -> None:
    """Create a temporary table from whole columns: name=(SQL type, values)."""
    chosen = ", ".join(f"UNNEST(CAST(${n} AS {kind}[])) AS {n}" for n, (kind, _) in columns.items())
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {chosen}",
        {n: list(v) for n, (_, v) in columns.items()},
    )
