"""Settings of the pipeline, their types, bounds and defaults.

``Settings()`` is the defaults and reads nothing; :func:`pipeline.layers.load` merges flags, environment and
file over them.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gateway_plugin.event import STREAM_KEY

ENV_PREFIX = "AGENTWATT_"
PowerUnit = Literal["W", "mW", "uW", "kW", "J", "mJ", "uJ", "kJ", "MJ", "Wh", "kWh"]
PowerPreset = Literal[
    "dcgm", "nvidia_smi", "nvml", "kepler", "ipmi", "redfish", "scaphandre", "apc_pdu", "servertech_pdu"
]
#: Factor from each unit to watt or joule.
UNIT_FACTOR: dict[str, float] = {
    "W": 1.0, "mW": 1e-3, "uW": 1e-6, "kW": 1e3,
    "J": 1.0, "mJ": 1e-3, "uJ": 1e-6, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6,
}  # fmt: skip
_POWER_UNITS = frozenset({"W", "mW", "uW", "kW"})


def _none_word(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in {"none", "null"} else value


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrInf = Annotated[float, Field(gt=0)]
SecondsOrNone = Annotated[Seconds | None, BeforeValidator(_none_word)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class DatabaseSettings(_Section):
    """The proxy's PostgreSQL database (read only; point it at a replica where there is one)."""

    url: SecretStr | None = None
    db_schema: str = "public"
    table: str = "LiteLLM_SpendLogs"
    lateness_s: Seconds = 21_600.0
    page_rows: Annotated[int, Field(ge=100, le=500_000)] = 20_000
    connect_timeout_s: Seconds = 10.0
    statement_timeout_s: Seconds = 120.0
    lock_timeout_s: Seconds = 5.0


class RedisSettings(_Section):
    """The stream that the plugin writes."""

    url: SecretStr | None = None
    stream_key: str = STREAM_KEY
    group: str = "agentwatt"
    consumer: str | None = None
    batch: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    max_file_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    max_file_bytes: Annotated[int, Field(ge=1_024)] = 64 * 1024 * 1024
    claim_idle_s: Seconds = 300.0
    timeout_s: Seconds = 10.0


class SloTier(_Section):
    """A service level of a turn: first token within ``ttft_s``, generation at ``speed_tok_s`` or faster."""

    ttft_s: Seconds
    speed_tok_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class PowerSource(_Section):
    """One measured power or energy series: its metric, unit, scope and how its devices are told apart."""

    name: str
    metric: str
    unit: PowerUnit
    kind: Literal["gauge", "counter"]
    scope: Literal["board", "node", "rack", "facility"]
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    identity_labels: list[str] = Field(default_factory=list)
    match_labels: dict[str, str] = Field(default_factory=dict)
    accuracy_percent: Annotated[float, Field(ge=0, lt=100)] | None = None
    synthetic: bool = False
    #: how many devices it must show; fewer is a missing sensor and no total is printed
    devices: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _unit_fits_kind(self) -> PowerSource:
        if (self.unit in _POWER_UNITS) != (self.kind == "gauge"):
            raise ValueError(
                f"unit {self.unit} does not fit kind {self.kind}: a gauge is in W, a counter in J or Wh"
            )
        return self

    @property
    def factor(self) -> float:
        """Factor from the exported number to watts (gauge) or joules (counter)."""
        return self.scale * UNIT_FACTOR[self.unit]


class PowerPool(_Section):
    """Devices that serve model groups together; entries of one name are its validity intervals.

    A pool of several model groups is split over them only by a declared rule: by the agents' time in flight,
    or by fixed shares.
    """

    name: Annotated[str, Field(min_length=1, pattern=r"^[^*]+$")]
    model_groups: Annotated[list[str], Field(min_length=1)]
    targets: list[str] = Field(default_factory=list)
    #: patterns (``GPU-1*``) of device identities
    devices: list[str] = Field(default_factory=list)
    match_labels: dict[str, str] = Field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    split: Literal["none", "llm_active", "shares"] = "none"
    shares: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)

    @field_validator("since", "until")
    @classmethod
    def _naive_utc(cls, value: datetime | None) -> datetime | None:
        return value.astimezone(UTC).replace(tzinfo=None) if value is not None and value.tzinfo else value

    @model_validator(mode="after")
    def _adds_up(self) -> PowerPool:
        if self.since and self.until and not self.since < self.until:
            raise ValueError(f"pool {self.name}: since is not before until")
        if (self.split == "shares") != bool(self.shares):
            raise ValueError(f"pool {self.name}: shares belong to split: shares, and that needs them")
        if self.shares and (
            set(self.shares) != set(self.model_groups) or abs(sum(self.shares.values()) - 1) > 1e-6
        ):
            raise ValueError(f"pool {self.name}: shares must name every model group and add up to 1")
        return self


class ProvisionedPower(_Section):
    """Power that was paid for (name plate, contract, breaker), not measured; a column of its own."""

    name: str
    watts: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    count: Annotated[int, Field(ge=1)] = 1
    source: Annotated[str, Field(min_length=1)]


class PowerSettings(_Section):
    """Where measured power comes from, and which model groups it serves."""

    sources: list[PowerSource] = Field(default_factory=list)
    #: usual exporters by name, beside the declared sources; neither: dcgm and nvml
    presets: list[PowerPreset] = Field(default_factory=list)
    max_gap_s: Seconds = 120.0
    pue: Annotated[float, Field(ge=1.0, le=5.0)] | None = None
    pue_source: str | None = None
    #: model group -> scrape targets whose power serves it
    model_groups: dict[str, list[str]] = Field(default_factory=dict)
    #: the same with devices, labels, validity intervals and rules to split; instead of model_groups
    pools: list[PowerPool] = Field(default_factory=list)
    provisioned: list[ProvisionedPower] = Field(default_factory=list)
    gpu_model: str | None = None
    min_coverage: Annotated[float, Field(gt=0, le=1)] = 0.8
    capacity_share: Annotated[float, Field(gt=0, le=1)] = 0.95
    #: at either end of a call, between the gateway's instant and the client's or the engine's
    unseen_ms: Annotated[float, Field(ge=0, le=60_000)] = 50.0
    external_model_groups: list[str] = Field(default_factory=list)
    external_providers: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _pue_needs_a_source(self) -> PowerSettings:
        if self.pue is not None and not self.pue_source:
            raise ValueError("pue is set without pue_source: say where the factor was measured or declared")
        if self.pools and self.model_groups:
            raise ValueError("pools and model_groups both map model groups to power: use one of them")
        return self


class Installed(_Section):
    """What is in place today, by declaration: the report compares the week's need with it."""

    #: Accelerators in service, spares included.
    gpus: Annotated[int, Field(ge=0)] | None = None
    #: Engine replicas in service, spares included.
    replicas: Annotated[int, Field(ge=0)] | None = None
    #: Gateway workers (processes of LiteLLM) in service.
    workers: Annotated[int, Field(ge=0)] | None = None
    source: Annotated[str, Field(min_length=1)]


class SizingSettings(_Section):
    """What the report sizes the platform from, beside the week itself; all of it may be left out."""

    #: Plan file: model, hardware, targets. Without one the published example stands in.
    plan: Path | None = None
    #: Computed plan of an earlier week, to be held against this one.
    last_plan: Path | None = None
    installed: Installed | None = None
    #: What the checklist looks at.
    proxy_config: Path | None = None
    chart_values: Path | None = None
    dashboards: Path | None = None
    engine_command: str | None = None


class MetricsSettings(_Section):
    """Scraping of metrics text and reading from Prometheus."""

    max_gap_s: Seconds = 120.0
    prometheus_url: SecretStr | None = None
    prometheus_token: SecretStr | None = None
    target_label: str = "instance"
    timeout_s: Seconds = 10.0
    flush_s: Seconds = 60.0


class Settings(BaseSettings):
    """All settings of the pipeline. ``Settings()`` is the defaults."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", validate_default=True
    )

    lake: Path = Path("lake")
    hash_secret: SecretStr | None = None
    business_time_zone: str = "UTC"
    idle_caps_s: list[Seconds] = Field(default=[300.0, 900.0, 1800.0], min_length=1)
    tool_caps_s: list[SecondsOrNone] = Field(default=[60.0, 300.0, 1800.0, None], min_length=1)
    visit_gap_s: Seconds = 1800.0
    retentions_s: list[SecondsOrInf] = Field(default=[math.inf, 3600.0, 300.0], min_length=1)
    slo_tiers: list[SloTier] = Field(
        default=[
            SloTier(speed_tok_s=20, ttft_s=10),
            SloTier(speed_tok_s=60, ttft_s=5),
            SloTier(speed_tok_s=180, ttft_s=3),
        ],
        min_length=1,
    )
    #: key aliases or key hashes whose work is unattended
    service_keys: list[str] = Field(default_factory=list)
    user_precedence: list[Literal["end_user", "user_id", "key"]] = Field(
        default=["end_user", "user_id", "key"], min_length=1
    )
    #: memory that a build may take, for the whole process; above it work goes through the lake's disk
    memory_gib: Annotated[float, Field(ge=1)] = 4.0
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    redis: RedisSettings = Field(default_factory=RedisSettings)
    power: PowerSettings = Field(default_factory=PowerSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    sizing: SizingSettings = Field(default_factory=SizingSettings)

    @model_validator(mode="after")
    def _zone_exists(self) -> Settings:
        try:
            ZoneInfo(self.business_time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"business_time_zone {self.business_time_zone!r} is no IANA time zone such as Europe/Berlin"
            ) from None
        return self

    @property
    def zone(self) -> tzinfo:
        """The business time zone."""
        return ZoneInfo(self.business_time_zone)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the arguments: the layering is not done here, so ``Settings()`` is repeatable."""
        return (init_settings,)
