"""Figures of recorded session traces, through the product's own importer, facts and marts.

    python benchmarks/weka_figures.py traces_rle.jsonl.gz

prints one JSON object: main-thread counts, turns, token percentiles, and the potential prefix by retention,
category and position in the turn. Seconds go to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline import figures, importing, run
from pipeline.settings import Settings

if TYPE_CHECKING:
    import duckdb

#: Names of categories and positions as they are printed.
_NAMES: Final = {"first_of_session": "first", "1": "pos1", "2": "pos2", "3+": "pos3+"}
_RETENTIONS: Final = ("inf", "3600", "300")
_MAIN: Final = "agent_kind = 'main'"


def measure(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return the figures of the facts bound in *con*."""
    sessions, main, subagents, users = _one(
        con,
        f"SELECT COUNT(DISTINCT CASE WHEN {_MAIN} THEN session_key END), "
        f"SUM(CASE WHEN {_MAIN} THEN 1 ELSE 0 END), "
        "SUM(CASE WHEN agent_kind = 'subagent' THEN 1 ELSE 0 END), "
        f"SUM(CASE WHEN {_MAIN} AND initiator = 'user' THEN 1 ELSE 0 END) FROM fct_call",
    )
    turns = _one(
        con,
        f"SELECT QUANTILE_CONT(n, 0.5), AVG(n) FROM (SELECT COUNT(*) AS n FROM fct_turn WHERE {_MAIN} "
        "AND has_user_call = 1 GROUP BY session_key)",
    )
    calls = _one(
        con,
        "SELECT QUANTILE_CONT(calls, 0.5), QUANTILE_CONT(calls, 0.9), AVG(calls) FROM fct_turn "
        f"WHERE {_MAIN}",
    )
    tokens = _one(
        con,
        "SELECT QUANTILE_CONT(input_tokens, 0.5), QUANTILE_CONT(input_tokens, 0.95), "
        "QUANTILE_CONT(output_tokens, 0.5), QUANTILE_CONT(output_tokens, 0.95), "
        f"SUM(input_tokens) / SUM(output_tokens) FROM fct_call WHERE {_MAIN}",
    )
    (minutes,) = _one(
        con,
        "SELECT QUANTILE_CONT(minutes, 0.5) FROM (SELECT (ARG_MAX(EPOCH_US(COALESCE(end_at, start_at)), "
        "(started_us, call_id)) - MIN(EPOCH_US(start_at))) / 6e7 AS minutes FROM fct_call "
        f"WHERE {_MAIN} GROUP BY session_key)",
    )
    return {
        "sessions": int(sessions),
        "main_calls": int(main or 0),
        "subagent_calls": int(subagents or 0),
        "user_initiated": int(users or 0),
        "user_share": users / main if main else None,
        "turns_per_session": {"p50": turns[0], "mean": turns[1]},
        "calls_per_turn": {"p50": calls[0], "p90": calls[1], "mean": calls[2]},
        "input": {"p50": tokens[0], "p95": tokens[1]},
        "output": {"p50": tokens[2], "p95": tokens[3]},
        "in_out_ratio": tokens[4],
        "session_min_p50": minutes,
        "potential_prefix": {retention: _potential(con, retention) for retention in _RETENTIONS},
    }


def _potential(con: duckdb.DuckDBPyConnection, retention: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for group in ("'all'", "c.category", "c.position"):
        rows = con.execute(
            f"SELECT {group}, SUM(p.potential_tokens) / SUM(p.input_tokens), COUNT(*) FROM fct_call AS c "
            f"JOIN fct_potential AS p ON p.call_id = c.call_id WHERE p.retention = $retention AND c.{_MAIN} "
            "GROUP BY ALL",
            {"retention": retention},
        ).fetchall()
        found |= {_NAMES.get(name, name): {"hit": hit, "calls": calls} for name, hit, calls in rows}
    return dict(sorted(found.items()))


def _one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = con.execute(query).fetchone()
    assert row is not None  # every query here is an aggregate
    return row


def main(arguments: list[str] | None = None) -> int:
    """Import the files into a lake of their own, build it, and print its figures."""
    parser = argparse.ArgumentParser(description="Figures of recorded session traces.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="trace files or folders")
    parser.add_argument("--kind", help="kind of the traces; told by each file where it is not given")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="agentwatt-") as folder:
        settings = Settings(lake=Path(folder))
        began = time.monotonic()
        report = importing.import_files(settings, options.files, kind=options.kind)
        imported = time.monotonic()
        built = run.build(settings.lake, settings)
        ready = time.monotonic()
        if built.failed_audits:
            print(f"audits failed: {[a.name for a in built.failed_audits]}", file=sys.stderr)
            return 4
        con = run.connect(settings.lake)
        try:
            if figures.bind(con, settings.lake, settings) is None:
                print("the files hold no call", file=sys.stderr)
                return 1
            result = measure(con)
        finally:
            con.close()
        done = time.monotonic()
    print(json.dumps(result, indent=1))
    rejected = sum(f.rejected.total() for f in report.files)
    print(
        f"{sum(f.calls for f in report.files):,} calls, {rejected:,} records set aside; import "
        f"{imported - began:.1f} s, facts {ready - imported:.1f} s, figures {done - ready:.1f} s",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
