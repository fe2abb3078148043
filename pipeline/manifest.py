"""What the facts and marts of a lake were built from, so that a run knows what is new."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from pipeline.lake import write_text
from pipeline.sql import binding, models, parameters

NAME: Final = "facts/_manifest.json"
_VERSION: Final = 2

#: Path below the lake -> size and time of its last change.
Stamps = dict[str, list[int]]


@dataclass(slots=True)
class Manifest:
    """What a lake was built from."""

    version: int = _VERSION
    conventions: str = ""
    files: Stamps = field(default_factory=dict)
    audits: list[dict[str, Any]] = field(default_factory=list)
    #: business day -> digest of what its part of the marts was made of
    marts: dict[str, str] = field(default_factory=dict)
    built_at: str = ""

    @classmethod
    def read(cls, lake: Path) -> Manifest:
        """Return the manifest of *lake*; an absent, unreadable or older one knows nothing."""
        try:
            content = json.loads((lake / NAME).read_text(encoding="utf-8"))
            return cls(**content) if content.get("version") == _VERSION else cls()
        except (OSError, ValueError, TypeError, AttributeError):
            return cls()

    def write(self, lake: Path) -> None:
        """Replace the manifest of *lake*."""
        write_text(lake / NAME, json.dumps(asdict(self)))


def stamps(lake: Path, paths: Iterable[Path]) -> Stamps:
    """Return sizes and times of *paths*."""
    found = {}
    for path in paths:
        stat = path.stat()
        found[str(path.relative_to(lake))] = [stat.st_size, stat.st_mtime_ns]
    return found


def raw_files(lake: Path) -> Stamps:
    """Return the raw files that facts are made of."""
    return stamps(lake, (p for f in ("raw/events", "raw/spend_logs") for p in binding.files(lake, f)))


def lost(known: Stamps, found: Stamps) -> bool:
    """Whether records vanished: a file is gone and nothing new (as a merged file) stands in its folder."""
    renewed = {Path(n).parent for n in found if n not in known}
    return any(Path(n).parent not in renewed for n in known if n not in found)


def within(name: str, since: date | None, until: date | None) -> bool:
    """Whether a file's day lies in ``[since, until)``."""
    day = binding.day_of(Path(name))
    return (since is None or day >= since) and (until is None or day < until)


def fact_conventions(settings: parameters.Conventions) -> str:
    """Everything that facts depend on beside raw records, as text."""
    power = settings.power
    parts = (
        models.fingerprint(),
        settings.visit_gap_s,
        sorted(parameters.retention_label(s) for s in settings.retentions_s),
        sorted(settings.service_keys),
        parameters.powered_groups(power),
        sorted(power.external_model_groups),
        sorted(power.external_providers),
    )
    return repr(parts)


def mart_conventions(settings: parameters.Conventions) -> str:
    """What marts depend on beside facts and metrics."""
    power = settings.power
    parts = (
        fact_conventions(settings),
        settings.business_time_zone,
        list(settings.idle_caps_s),
        list(settings.tool_caps_s),
        [parameters.tier_label(t) for t in settings.slo_tiers],
        [repr(s) for s in power.sources],
        list(power.presets),
        power.max_gap_s,
        sorted((group, sorted(targets)) for group, targets in power.model_groups.items()),
        [repr(p) for p in power.pools],
        models.fingerprint((*models.CALL_MARTS, *models.METRIC_MARTS)),
        models.PUBLISHED,
    )
    return digest(parts)


def digest(value: object) -> str:
    """Return a digest of a value that prints the same whenever it is the same."""
    return hashlib.blake2b(repr(value).encode(), digest_size=16).hexdigest()
