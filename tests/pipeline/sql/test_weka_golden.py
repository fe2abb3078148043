"""530 recorded sessions through the real models reproduce the published figures of those traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline import figures, importing, run
from pipeline.settings import Settings as FileSettings
from tests.pipeline.sql.synthetic import Settings

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
TRACES = SHARED / "data/weka_cc_traces/traces_rle.jsonl.gz"
GOLDEN = SHARED / "golden/weka_530.json"

pytestmark = pytest.mark.skipif(
    not TRACES.exists() or not GOLDEN.exists(), reason=f"recorded traces not at {SHARED}"
)

NAMES = {"first": "first_of_session", "pos1": "1", "pos2": "2", "pos3+": "3+"}


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("weka")
    importing.import_files(FileSettings(lake=root), [TRACES])
    result = run.build(root, Settings())
    assert result.failed_audits == ()
    return root


@pytest.fixture(scope="module")
def con(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = run.connect(lake)
    assert figures.bind(connection, lake, Settings()) is not None
    yield connection
    connection.close()


def one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = con.execute(query).fetchone()
    assert row is not None
    return row


def test_counts_of_calls_sessions_and_initiators_are_exact(
    con: duckdb.DuckDBPyConnection, golden: dict[str, Any]
) -> None:
    sessions, calls, users = one(
        con,
        "SELECT COUNT(DISTINCT session_key), COUNT(*), SUM(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END) "
        "FROM fct_call WHERE agent_kind = 'main'",
    )
    subagents = one(con, "SELECT COUNT(*) FROM fct_call WHERE agent_kind = 'subagent'")[0]
    assert (sessions, calls, subagents, users) == (
        golden["sessions"], golden["main_calls"], golden["subagent_calls"], golden["user_initiated"],
    )  # fmt: skip
    assert users / calls == pytest.approx(golden["user_share"], rel=1e-9)


def test_turns_per_session_and_calls_per_turn_match(
    con: duckdb.DuckDBPyConnection, golden: dict[str, Any]
) -> None:
    p50, mean = one(
        con,
        "SELECT QUANTILE_CONT(n, 0.5), AVG(n) FROM (SELECT COUNT(*) AS n FROM fct_turn WHERE agent_kind = "
        "'main' "
        "AND has_user_call = 1 GROUP BY session_key)",
    )
    assert (p50, mean) == pytest.approx(
        (golden["turns_per_session"]["p50"], golden["turns_per_session"]["mean"]), rel=1e-9
    )
    found = one(
        con,
        "SELECT QUANTILE_CONT(calls, 0.5), QUANTILE_CONT(calls, 0.9), AVG(calls) FROM fct_turn WHERE "
        "agent_kind = 'main'",
    )
    expected = golden["calls_per_turn"]
    assert found == pytest.approx((expected["p50"], expected["p90"], expected["mean"]), rel=1e-9)


def test_token_percentiles_and_the_ratio_of_sums_match(
    con: duckdb.DuckDBPyConnection, golden: dict[str, Any]
) -> None:
    found = one(
        con,
        "SELECT QUANTILE_CONT(input_tokens, 0.5), QUANTILE_CONT(input_tokens, 0.95), "
        "QUANTILE_CONT(output_tokens, 0.5), "
        "QUANTILE_CONT(output_tokens, 0.95), SUM(input_tokens) / SUM(output_tokens) FROM fct_call WHERE "
        "agent_kind = 'main'",
    )
    expected = (
        golden["input"]["p50"], golden["input"]["p95"], golden["output"]["p50"], golden["output"]["p95"],
        golden["in_out_ratio"],
    )  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_median_session_lasts_from_first_start_to_last_end(
    con: duckdb.DuckDBPyConnection, golden: dict[str, Any]
) -> None:
    (found,) = one(
        con,
        "SELECT QUANTILE_CONT(minutes, 0.5) FROM (SELECT (MAX(EPOCH_US(COALESCE(end_at, start_at))) "
        "FILTER (WHERE last_call = 1) "
        "- MIN(EPOCH_US(start_at))) / 6e7 AS minutes FROM (SELECT session_key, start_at, end_at, CASE WHEN "
        "ROW_NUMBER() "
        "OVER (PARTITION BY session_key ORDER BY started_us DESC, call_id DESC) = 1 THEN 1 END AS last_call "
        "FROM fct_call WHERE agent_kind = 'main') GROUP BY session_key)",
    )
    assert found == pytest.approx(golden["session_min_p50"], rel=1e-9)


@pytest.mark.parametrize("retention", ["inf", "3600", "300"])
def test_potential_prefix_matches_by_category_and_position(
    con: duckdb.DuckDBPyConnection, golden: dict[str, Any], retention: str
) -> None:
    rows = con.execute(
        "SELECT c.category, c.position, COUNT(*), SUM(p.potential_tokens), SUM(p.input_tokens) FROM fct_call "
        "AS c "
        f"JOIN fct_potential AS p ON p.call_id = c.call_id AND p.retention = '{retention}' "
        "WHERE c.agent_kind = 'main' GROUP BY c.category, c.position"
    ).fetchall()
    for name, expected in golden["potential_prefix"][retention].items():
        wanted = NAMES.get(name, name)
        chosen = [r for r in rows if name == "all" or wanted in (r[0], r[1])]
        assert sum(r[2] for r in chosen) == expected["calls"], name
        assert sum(r[3] for r in chosen) / sum(r[4] for r in chosen) == pytest.approx(
            expected["hit"], rel=1e-9
        ), name
