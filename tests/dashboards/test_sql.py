"""Every SQL panel runs against a real server after an export, and shows something."""

from __future__ import annotations

import asyncio
import math
import zlib
from datetime import datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from dashboards.src import queries

SQL = [q for q in (*queries.of_panels(), *queries.of_variables()) if q.kind == "sql"]
START, END = "2026-02-23T00:00:00Z", "2026-03-10T00:00:00Z"


def ask(url: str, sql: str) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction(readonly=True):
                return [dict(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    return asyncio.run(run())


def filled(query: queries.PanelQuery) -> str:
    return queries.filled_sql(query.text, START, END, ("coder-large", "coder-small"))


@pytest.mark.parametrize("query", SQL, ids=lambda q: f"{q.where} {zlib.crc32(q.text.encode()) % 1000}")
def test_an_sql_panel_runs_and_shows_something(query: queries.PanelQuery, exported_url: str) -> None:
    rows = ask(exported_url, filled(query))
    assert rows
    if not query.panel.startswith("$"):
        values = [v for row in rows for v in row.values() if isinstance(v, (int, float, Decimal))]
        assert any(v is not None and not math.isnan(v) for v in values)


@pytest.mark.parametrize("query", SQL, ids=lambda q: f"{q.where} {zlib.crc32(q.text.encode()) % 1000}")
def test_a_series_has_a_time_and_a_share_is_a_share(query: queries.PanelQuery, exported_url: str) -> None:
    board = queries.dashboards()[f"{query.dashboard}.json"]
    panels = [p for p in queries.panels(board) if p["title"] == query.panel]
    if not panels:  # the query of a variable
        assert query.panel.startswith("$")
        return
    panel = panels[0]
    (target,) = [t for t in panel["targets"] if t["rawSql"] == query.text]
    rows = ask(exported_url, filled(query))
    if target["format"] == "time_series":
        assert all(isinstance(row["time"], datetime) for row in rows)
        assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    if panel["fieldConfig"]["defaults"]["unit"] == "percentunit":
        shares = [v for row in rows for v in row.values() if isinstance(v, (float, Decimal))]
        assert shares
        assert all(0 <= v <= 1 for v in shares)


def test_the_figure_on_the_sizing_board_is_the_one_of_the_report(exported_url: str) -> None:
    (query,) = [q for q in SQL if q.panel == "Realised prefix hit"]
    (row,) = ask(exported_url, filled(query))
    daily = ask(
        exported_url,
        "SELECT SUM(cached_tokens) / SUM(reporting_input_tokens) AS hit "
        "FROM agentwatt.agentwatt_realised_day",
    )
    assert row["value"] == pytest.approx(daily[0]["hit"])


def test_sql_panels_only_read() -> None:
    for query in SQL:
        assert query.text.upper().startswith("SELECT"), query.where
        assert ";" not in query.text
