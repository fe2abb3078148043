"""Layers of the settings: flags over environment over file over defaults; every value knows its origin.

From strong to weak: flags, ``AGENTWATT_…`` variables (``__`` between levels), ``DATABASE_URL`` and
``REDIS_URL``, the file, the defaults.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from pipeline.errors import ConfigError
from pipeline.settings import ENV_PREFIX, PowerSource, Settings, SloTier

#: Conventional variables, weaker than ours: name -> path of the setting.
PLAIN_ENV = {
    "DATABASE_URL": ("database", "url"),
    "REDIS_URL": ("redis", "url"),
    # The plugin's secret and stream, so that one environment serves both.
    "AGENTWATT_PLUGIN__SECRET": ("hash_secret",),
    "AGENTWATT_PLUGIN__REDIS_URL": ("redis", "url"),
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with, for each dotted key, where its value came from."""

    settings: Settings
    origins: dict[str, str]
    looked_in: tuple[str, ...] = ()
    notices: list[str] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """Each setting as ``key``, ``value`` (secrets masked) and ``origin``."""
        return [
            {"key": key, "value": value, "origin": self.origins.get(key, "default")}
            for key, value in _flatten(self.settings.model_dump(mode="python"))
        ]


def load(
    config: Path | None = None, flags: Mapping[str, Any] | None = None, *, directory: Path | None = None
) -> Loaded:
    """Merge flags, environment, file and defaults.

    Args:
        config: a YAML file: ours at the top level or under ``agentwatt:``. Default: the ``agentwatt:``
            section of ``config.yaml``, else ``agentwatt.yaml``, in *directory* (the working directory).
        flags: values by dotted key, ``None`` meaning not given.

    Raises:
        ConfigError: names key, value, what is allowed, and where was looked.
    """
    directory = directory or Path.cwd()
    file_values, file_name, looked_in = _read_file(config, directory)
    layers: list[tuple[str, dict[str, Any]]] = []
    if file_name:
        layers.append((f"file {file_name}", file_values))
    layers += [(f"env {name}", _nest(path, os.environ[name])) for name, path in PLAIN_ENV.items()
               if os.environ.get(name)]  # fmt: skip
    notices: list[str] = []
    layers.append(("env", _environment(notices)))
    for key, value in (flags or {}).items():
        if value is not None:
            layers.append(("flag", _nest(tuple(key.split(".")), value)))

    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in layers:
        merged = _merge(merged, values)
        for key, _ in _flatten(values):
            shown = f"env {ENV_PREFIX}{key.replace('.', '__').upper()}" if origin == "env" else origin
            origins = {k: o for k, o in origins.items() if not k.startswith(key + ".")}
            origins[key] = shown
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise _explain(error, origins, looked_in) from None
    return Loaded(settings, origins, tuple(looked_in), notices)


def _read_file(config: Path | None, directory: Path) -> tuple[dict[str, Any], str | None, list[str]]:
    import yaml

    looked_in: list[str] = []
    candidates = [config] if config else [directory / "config.yaml", directory / "agentwatt.yaml"]
    for path in candidates:
        looked_in.append(str(path))
        if not path.is_file():
            if config:
                raise ConfigError(
                    f"The settings file {path} does not exist.",
                    why="--config names it.",
                    next_step="Correct the path, or leave --config out to use config.yaml or agentwatt.yaml.",
                )
            continue
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"The settings file {path} cannot be read.", why=str(error)) from None
        section = content.get("agentwatt") if isinstance(content, dict) else None
        if section is None and path.name == "config.yaml":
            continue  # a proxy configuration without our section
        if section is None:
            section = {} if content is None else content
        if not isinstance(section, dict):
            raise ConfigError(
                f"The settings file {path} holds a {type(section).__name__} where keys are expected."
            )
        return section, str(path), looked_in
    return {}, None, looked_in


def _environment(notices: list[str]) -> dict[str, Any]:
    """Our variables as nested values; unknown ones may be the plugin's and are only noticed."""
    try:
        values = EnvSettingsSource(Settings, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()
    except SettingsError as error:
        raise ConfigError(
            "An AGENTWATT_ variable cannot be read.",
            why=f"{error}: lists and maps are written as JSON.",
            next_step="""Write for instance AGENTWATT_IDLE_CAPS_S='[300, 900, 1800]'.""",
        ) from None
    kept: dict[str, Any] = {}
    for key, value in values.items():
        section = Settings.model_fields[key].annotation
        if isinstance(value, dict) and isinstance(section, type) and issubclass(section, BaseModel):
            unknown = value.keys() - section.model_fields.keys()
            notices += [
                f"{ENV_PREFIX}{key.upper()}__{name.upper()} is not a pipeline setting" for name in unknown
            ]
            value = {k: v for k, v in value.items() if k not in unknown}
        kept[key] = value
    return kept


def _explain(error: ValidationError, origins: Mapping[str, str], looked_in: list[str]) -> ConfigError:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        origin = next((origins[k] for k in _ancestors(key) if k in origins), "")
        if problem["type"] == "extra_forbidden":
            known = _known_keys(problem["loc"])
            close = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known keys: {', '.join(known)}"
            lines.append(f"{key}: unknown key ({origin}); {hint}")
            continue
        shown = "" if "url" in key or "secret" in key or "token" in key else f" = {problem['input']!r:.200}"
        if not key:
            key, shown = "settings", ""
        lines.append(
            f"{key}{shown}: {problem['msg'].removeprefix('Value error, ')}"
            + (f" ({origin})" if origin else "")
        )
    return ConfigError(
        "The settings are not valid.",
        why="; ".join(lines) + f". Looked in: flags, environment, {', '.join(looked_in)}.",
        next_step="agentwatt config show --origin lists every key with where its value comes from.",
    )


def _known_keys(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in loc[:-1]:
        annotation = model.model_fields[part].annotation if isinstance(part, str) else model
        if part == "sources":
            annotation = PowerSource
        elif part == "slo_tiers":
            annotation = SloTier
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return sorted(model.model_fields)


def _ancestors(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _nest(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return dict(value)


def _merge(weak: dict[str, Any], strong: dict[str, Any]) -> dict[str, Any]:
    merged = dict(weak)
    for key, value in strong.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            rows += _flatten(value, name + ".")
        else:
            rows.append((name, _printable(value)))
    return rows


def _printable(value: Any) -> Any:
    """A value fit for JSON: secrets masked, infinity as a word."""
    if isinstance(value, SecretStr):
        return "********"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, list):
        return [_printable(v) for v in value]
    if isinstance(value, dict):
        return {k: _printable(v) for k, v in value.items()}
    return value
