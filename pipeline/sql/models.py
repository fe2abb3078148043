"""Reads the ``.sql`` models and audits, and runs them in order as temporary tables."""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import duckdb

ROOT: Final = Path(__file__).parent
Severity = Literal["error", "warning", "info"]

#: Every model in the order in which it can be built.
STAGING: Final = (
    "stg_record",
    "stg_event",
    "stg_row",
    "stg_row_match",
    "stg_row_call",
    "stg_prefix_step",
    "stg_call",
)
FACTS: Final = ("fct_prefix", "fct_potential", "fct_place", "fct_call", "fct_turn", "fct_session")
#: Wide models that others read a few columns of: as views they cost what is read of them, as tables a copy.
VIEWS: Final = frozenset({"stg_event", "stg_call", "fct_potential", "mart_placed_call"})
#: Marts over calls, turns and sessions alone.
CALL_MARTS: Final = (
    "mart_call_day",
    "mart_prompt_bucket",
    "mart_suspect_cell",
    "mart_hour_cell",
    "mart_realised",
    "mart_potential",
    "mart_burst",
    "mart_visit",
    "mart_placed_call",
    "mart_call_sum",
    "mart_prefix_cell",
    "mart_in_turn",
    "mart_human_hour",
    "mart_concurrency",
    "mart_concurrency_level",
    "mart_concurrency_hour",
    "mart_ttft_bucket",
    "mart_count_cost",
    "mart_coverage",
)
#: Marts that also read scraped metrics.
METRIC_MARTS: Final = (
    "mart_engine_prefix",
    "mart_saturation",
    "mart_energy_segment",
    "mart_energy_island",
    "mart_energy_hour",
    "mart_energy_bound",
    "mart_energy_bound_day",
    "mart_turn_conformity",
    "mart_agent_interval",
    "mart_pooled_hour",
    "mart_agent_hour",
    "mart_agent_window",
    "mart_agent_gap",
    "mart_agent_work",
    "mart_little",
)
#: Marts written to the lake for dashboards and other readers.
PUBLISHED: Final = (
    "mart_call_day",
    "mart_prompt_bucket",
    "mart_realised",
    "mart_potential",
    "mart_visit",
    "mart_call_sum",
    "mart_prefix_cell",
    "mart_human_hour",
    "mart_in_turn",
    "mart_concurrency_level",
    "mart_ttft_bucket",
    "mart_count_cost",
    "mart_coverage",
    "mart_engine_prefix",
    "mart_energy_hour",
    "mart_agent_hour",
)
#: Ids that an audit names.
SAMPLES: Final = 5
_PARAMETER = re.compile(r"\$([a-z_][a-z0-9_]*)")
_COMMENT = re.compile(r"--[^\n]*")


@dataclass(frozen=True, slots=True)
class Model:
    """One ``.sql`` file: its name, its query and the parameters it names."""

    name: str
    sql: str
    parameters: frozenset[str]

    @property
    def header(self) -> str:
        """The comment above the query: grain, sources, meaning."""
        lines = []
        for line in self.sql.splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found: how many bad rows, and a few of their ids."""

    name: str
    severity: Severity
    rows: int
    samples: tuple[str, ...]
    meaning: str

    @property
    def failed(self) -> bool:
        """An error that returned rows."""
        return self.severity == "error" and self.rows > 0


@cache
def load(name: str) -> Model:
    """Return the model or audit called *name*.

    Raises:
        KeyError: no such file.
    """
    for folder in ("staging", "facts", "marts", "audits"):
        path = ROOT / folder / f"{name}.sql"
        if path.is_file():
            sql = path.read_text(encoding="utf-8")
            return Model(name, sql, frozenset(_PARAMETER.findall(_COMMENT.sub("", sql))))
    raise KeyError(name)


@cache
def audit_names() -> tuple[str, ...]:
    """Return the names of all audits."""
    return tuple(sorted(p.stem for p in (ROOT / "audits").glob("*.sql")))


@cache
def fingerprint(names: tuple[str, ...] = (*STAGING, *FACTS)) -> str:
    """Return a digest of models, of staging and facts by default: what other models built is stale."""
    digest = hashlib.blake2b(digest_size=8)
    for name in names:
        digest.update(load(name).sql.encode())
    return digest.hexdigest()


def run(con: duckdb.DuckDBPyConnection, names: Iterable[str], parameters: Mapping[str, Any]) -> None:
    """Build the models *names* in order as temporary tables, those of :data:`VIEWS` as views.

    Raises:
        KeyError: a model names a parameter that *parameters* lacks.
    """
    for name in names:
        model = load(name)
        values = {key: parameters[key] for key in model.parameters}
        kind = "VIEW" if name in VIEWS else "TABLE"
        con.execute(f"CREATE OR REPLACE TEMP {kind} {name} AS {model.sql}", values or None)


def audit(
    con: duckdb.DuckDBPyConnection, *, only: Iterable[str] = (), leave_out: Iterable[str] = ()
) -> list[Audit]:
    """Run the audits over the models built in *con*: all of them, *only* some, or all but some."""
    results = []
    names = tuple(only) or tuple(n for n in audit_names() if n not in set(leave_out))
    for name in names:
        model = load(name)
        found = con.execute(
            f"WITH bad AS ({_strip(model.sql)}) SELECT COUNT(*), MIN(CAST(id AS VARCHAR), {SAMPLES}) FROM bad"
        ).fetchone()
        count, ids = found if found else (0, None)
        results.append(
            Audit(name, _severity(model), int(count), tuple(i for i in ids or () if i), _title(model))
        )
    return results


def _severity(model: Model) -> Severity:
    found = re.search(r"Severity: (error|warning|info)", model.header)
    if not found:
        raise ValueError(f"audit {model.name} states no severity")
    return found.group(1)  # type: ignore[return-value]


def _title(model: Model) -> str:
    return model.header.splitlines()[0].split(":", 1)[1].strip()


def _strip(sql: str) -> str:
    return _COMMENT.sub("", sql).strip()
