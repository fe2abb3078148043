"""Settings of the plugin: one typed table, from the environment or a section of the proxy's config.yaml.

Precedence: environment ``AGENTWATT_PLUGIN__<NAME>`` > ``agentwatt_plugin:`` section of config.yaml > plain
``REDIS_URL`` for the Redis address > default. A wrong value never stops the proxy: the caller catches
:class:`SettingsError`, logs one line and leaves telemetry off.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

SECTION: Final = "agentwatt_plugin"
ENV_PREFIX: Final = "AGENTWATT_PLUGIN__"


class SettingsError(ValueError):
    """A setting has a value that cannot be used; the message names key, value and what is allowed."""


class PluginSettings(BaseSettings):
    """Every setting of the plugin. Sizes in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", populate_by_name=True)

    enabled: bool = Field(True, description="switch the whole plugin off without editing callbacks")
    secret: SecretStr | None = Field(
        None, description="key of all stored digests; shared by workers and pipeline"
    )
    redis_url: SecretStr | None = Field(
        None,
        description="address of the event stream: redis://, rediss://, unix://, redis+sentinel://, "
        "redis+cluster://; REDIS_URL when not set; none = no stream",
    )
    stream_max_len: int = Field(200_000, ge=1000, description="MAXLEN ~ of the stream, entries")
    stream_ttl_s: int = Field(
        7 * 86_400, ge=0, description="the stream expires when nothing was written for so long; 0 = never"
    )
    queue_max_events: int = Field(
        20_000, ge=100, description="bound of the in-process queue; the oldest is dropped"
    )
    batch_max_events: int = Field(200, ge=1, le=5000, description="entries per round trip to Redis")
    flush_interval_s: float = Field(0.5, gt=0, le=10, description="longest wait before a batch is written")
    redis_timeout_s: float = Field(2.0, gt=0, le=30, description="deadline of one write to Redis")
    shutdown_flush_s: float = Field(1.0, ge=0, le=5, description="time to flush at shutdown")
    spool_dir: Path | None = Field(
        None, description="folder for call records while Redis is away; none = they wait in memory"
    )
    spool_max_bytes: int = Field(
        256 << 20, ge=1 << 20, description="bound of a worker's spool; the oldest records are dropped"
    )
    metrics: bool = Field(True, description="Prometheus metrics in the proxy's registry")
    spans: bool = Field(True, description="attributes on the request span when the proxy traces")
    genai_semconv: Literal["auto", "legacy", "latest"] = Field(
        "auto",
        description="names of the GenAI conventions: before 1.37, after, or as OTEL_SEMCONV_STABILITY_OPT_IN "
        "says",
    )
    sample_interval_s: float = Field(
        5.0, ge=0.1, le=60, description="how often gauges are set and stale calls are looked for"
    )
    db_connections: bool = Field(
        False, description="ask the proxy's database for its connections at each sample"
    )
    count_exact: bool = Field(
        False, description="measure every run of LiteLLM's token counter by wrapping private parts of it"
    )
    count_incremental: bool = Field(
        False, description="replace LiteLLM's token counter by an equal sum of remembered counts"
    )
    open_timeout_s: float = Field(3600.0, gt=0, description="a call open for longer is closed as aborted")
    left_grace_s: float = Field(
        30.0, ge=0, le=3600, description="wait for an event after the proxy is done with a request's task"
    )
    max_streams: int = Field(20_000, ge=10, description="streams (session and agent) remembered by a worker")
    max_state_bytes: int = Field(
        128 << 20, ge=1 << 20, description="memory for prefix chains; an eighth more for conversations"
    )
    shared_state: bool = Field(
        True, description="share streams over Redis, so that several workers see one history"
    )
    shared_state_ttl_s: int = Field(
        6 * 3600, ge=60, description="a stream that nobody used for so long is forgotten in Redis"
    )
    heads_per_model: int = Field(
        4, ge=1, le=32, description="distinct prompt heads kept per stream and model"
    )
    max_prompt_bytes: int = Field(
        4 << 20, ge=1 << 16, description="prompts above this are not digested to the end"
    )
    hand_over_session: bool = Field(
        False,
        description="give an inferred session (a hash) to the proxy for affinity; some providers forward it",
    )
    user_precedence: tuple[str, ...] = Field(
        ("end_user", "user_id", "key"), description="which of end_user, user_id and key names the person"
    )
    service_keys: frozenset[str] = Field(
        frozenset(), description="aliases of keys that belong to unattended work: they have no human-hours"
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file, whose section arrives as init values."""
        return env_settings, init_settings


def load(config_path: str | None = None) -> PluginSettings:
    """Return the settings.

    Args:
        config_path: the proxy's config.yaml; its ``agentwatt_plugin`` section is read when present.

    Raises:
        SettingsError: a key is unknown or a value is not allowed.
    """
    section = _section(config_path)
    if not section.get("redis_url") and (plain := os.environ.get("REDIS_URL")):
        section["redis_url"] = plain
    try:
        return PluginSettings(**section)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(p) for p in first["loc"]) or "?"
        where = f"{ENV_PREFIX}{name.upper()} or {SECTION}.{name}"
        raise SettingsError(
            f"agentwatt: setting {name} is not usable: {first['msg']} (set by {where})"
        ) from None


def _section(config_path: str | None) -> dict[str, Any]:
    if not config_path or "://" in config_path:
        return {}
    path = Path(config_path)
    if not path.is_file():
        return {}
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"agentwatt: cannot read {path}: {type(error).__name__}") from None
    section = document.get(SECTION) if isinstance(document, dict) else None
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise SettingsError(f"agentwatt: {SECTION} in {path} must be a mapping, not {type(section).__name__}")
    return {str(k): v for k, v in section.items()}


def config_path_from_environment() -> str | None:
    """Return the path of the proxy's config file as the proxy itself stores it."""
    return os.environ.get("CONFIG_FILE_PATH") or os.environ.get("LITELLM_CONFIG_PATH")
