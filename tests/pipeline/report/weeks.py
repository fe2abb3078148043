"""Weeks of agent work of any size, drawn inside the database: deterministic, with days, people and habits."""

# ruff: noqa: E501 - a query reads best when a column stands on one line

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipeline.sql import binding

#: Monday of the week that the report is about.
MONDAY = date(2026, 3, 9)
GPUS = 8
#: Share of the sessions of each day, Monday first.
DAYS = (0.19, 0.2, 0.2, 0.19, 0.16, 0.03, 0.03)


def write(
    lake: Path, sessions: int, *, monday: date = MONDAY, weeks: int = 1, power: bool = True, people: int = 40
) -> None:
    """Write raw events, and readings of the boards' energy, for the *weeks* up to and with that of *monday*.

    Every week has *sessions* sessions, the earlier ones a tenth fewer for each week back.
    """
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for back in range(weeks):
        first = monday - timedelta(weeks=back)
        count = max(1, round(sessions * 0.9**back))
        con.execute(_CALLS, {"monday": first, "sessions": count, "people": people, "week": back})
        _save(con, lake, "raw_event", "calls")
        if power:
            con.execute(_POWER, {"monday": first, "gpus": GPUS})
            _save(con, lake, "raw_metric", "power")
    con.close()


def settings() -> dict[str, Any]:
    """The power source that fits the readings."""
    return {
        "power": {
            "sources": [
                {
                    "name": "boards",
                    "metric": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                    "unit": "mJ",
                    "kind": "counter",
                    "scope": "board",
                    "identity_labels": ["UUID"],
                }
            ],
            "model_groups": {"coder-large": ["node-1"], "coder-small": ["node-1"]},
        }
    }


def _save(con: duckdb.DuckDBPyConnection, lake: Path, relation: str, source: str) -> None:
    folder, _ = binding.RAW[relation]
    column = "MAKE_TIMESTAMP(started_us)" if relation == "raw_event" else "ts"
    days = con.execute(f"SELECT DISTINCT CAST({column} AS DATE) FROM {source} ORDER BY 1").fetchall()
    for (day,) in days:
        target = lake / folder / f"date={day}"
        target.mkdir(parents=True, exist_ok=True)
        con.execute(
            f"COPY (SELECT * FROM {source} WHERE CAST({column} AS DATE) = DATE '{day}') "
            f"TO '{target / f'{source}.parquet'}' (FORMAT parquet, COMPRESSION zstd)"
        )


#: One row a call. ``u(i, k)`` is a uniform number of the k-th kind for thing i.
_CALLS = """
CREATE OR REPLACE TEMP MACRO u(i, k) AS (HASH(CAST(i AS VARCHAR) || '/' || k) % 1000003) / 1000003.0;
CREATE OR REPLACE TEMP TABLE calls AS
WITH session AS (
  SELECT
    $week * 10000000 + i AS s,
    CAST(FLOOR(POWER(u(i, 'p'), 1.5) * $people) AS INTEGER) AS person,
    CASE WHEN u(i, 'd') < 0.19 THEN 0 WHEN u(i, 'd') < 0.39 THEN 1 WHEN u(i, 'd') < 0.59 THEN 2
         WHEN u(i, 'd') < 0.78 THEN 3 WHEN u(i, 'd') < 0.94 THEN 4 WHEN u(i, 'd') < 0.97 THEN 5 ELSE 6 END AS day,
    8.0 + 5.0 * (u(i, 'h') + u(i, 'm')) AS hour,
    CASE WHEN u(i, 'k') < 0.35 THEN 1 WHEN u(i, 'k') < 0.8 THEN 6 WHEN u(i, 'k') < 0.95 THEN 14 ELSE 30 END AS depth,
    1 + CAST(FLOOR(u(i, 't') * 5) AS INTEGER) AS turns
  FROM RANGE($sessions) AS r(i)
),
turn AS (SELECT s.*, UNNEST(RANGE(1, turns + 1)) AS turn FROM session AS s),
raw AS (
  SELECT t.*, UNNEST(RANGE(1, 1 + GREATEST(1, CAST(FLOOR(depth * (0.5 + u(s * 100 + turn, 'l'))) AS INTEGER)))) AS nth FROM turn AS t
),
timed AS (
  SELECT
    r.*,
    s * 10000 + turn * 100 + nth AS c,
    2.0 + 14.0 * u(s * 10000 + turn * 100 + nth, 'dur') AS seconds,
    CASE WHEN nth > 1 THEN 1.0 + 12.0 * POWER(u(s * 10000 + turn * 100 + nth, 'gap'), 3)
         WHEN turn > 1 THEN 20.0 + 3000.0 * POWER(u(s * 10000 + turn * 100 + nth, 'idle'), 4) ELSE 0.0 END AS gap,
    400.0 + 2400.0 * u(s * 10000 + turn * 100 + nth, 'grow') AS grown
  FROM raw AS r
),
placed AS (
  SELECT
    t.*,
    ROW_NUMBER() OVER w AS n,
    SUM(seconds + gap) OVER w - seconds AS offset_s,
    6000.0 + SUM(grown) OVER w AS tokens
  FROM timed AS t
  WINDOW w AS (PARTITION BY s ORDER BY turn, nth ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
broken AS (
  SELECT
    p.*,
    CASE WHEN n = 1 THEN 'first' WHEN u(c, 'b') < 0.012 THEN 'tools_changed' WHEN u(c, 'b') < 0.02 THEN 'system_changed'
         WHEN u(c, 'b') < 0.045 THEN 'history_edited' ELSE 'none' END AS reason,
    u(c, 'e') AS luck
  FROM placed AS p
),
done AS (
  SELECT
    b.*,
    CAST(tokens AS BIGINT) AS input,
    CASE WHEN n = 1 THEN 0 WHEN reason = 'none' THEN tokens - grown WHEN reason = 'history_edited' THEN (tokens - grown) * 0.4
         ELSE 0 END AS shared
  FROM broken AS b
)
SELECT
  1 AS schema,
  'e' || c AS event_id,
  'final' AS stage,
  CASE WHEN u(c, 'f') < 0.985 THEN 'success' WHEN u(c, 'f') < 0.995 THEN 'failure' ELSE 'aborted' END AS outcome,
  CAST(EPOCH_US(CAST($monday AS TIMESTAMP)) + (day * 86400.0 + hour * 3600.0 + offset_s) * 1e6 AS BIGINT) AS started_us,
  CAST(EPOCH_US(CAST($monday AS TIMESTAMP)) + (day * 86400.0 + hour * 3600.0 + offset_s + seconds) * 1e6 AS BIGINT) AS ended_us,
  's' || s AS session_key, 'E1' AS session_evidence, 'main' AS agent_id, 'main' AS agent_kind,
  's' || s || '-' || turn AS turn_id, turn AS turn_index, nth AS call_index, 'E3' AS turn_evidence,
  CASE WHEN nth = 1 THEN 'user' ELSE 'agent' END AS initiator,
  CASE WHEN person % 10 < 6 THEN 'claude-code' WHEN person % 10 < 8 THEN 'opencode' WHEN person % 10 < 9 THEN 'codex' ELSE 'other' END AS client,
  'u' || person AS user_hash, 'end_user' AS user_source, 'team-' || person % 7 AS team_id, 'key-' || person AS key_alias,
  'chat' AS route, TRUE AS stream,
  CASE WHEN person % 5 = 0 THEN 'coder-small' ELSE 'coder-large' END AS model_group,
  'hosted_vllm' AS provider,
  CASE WHEN u(c, 'f') < 0.985 THEN input END AS input_tokens,
  CASE WHEN u(c, 'f') >= 0.985 THEN NULL WHEN gap > 900 THEN 0 WHEN luck < 0.07 THEN 0 ELSE CAST(FLOOR(shared / 16) * 16 AS BIGINT) END AS cached_tokens,
  CASE WHEN u(c, 'f') < 0.985 THEN CAST(40 + 900 * POWER(u(c, 'o'), 3) AS BIGINT) END AS output_tokens,
  'provider' AS usage_source,
  input * 4 AS prompt_bytes, CAST(shared * 4 AS BIGINT) AS shared_bytes,
  CASE WHEN n = 1 THEN '[]' ELSE '[[' || CAST(ROUND(gap, 3) AS VARCHAR) || ', ' || CAST(CAST(shared * 4 AS BIGINT) AS VARCHAR) || ']]' END AS prefix_steps,
  reason AS break_reason,
  CASE WHEN n = 1 THEN NULL ELSE gap * 1000 END AS idle_ms,
  CASE WHEN person % 10 < 6 THEN 24 WHEN person % 10 < 9 THEN 12 ELSE 61 END AS tool_count,
  CASE WHEN person % 10 < 6 THEN 24 WHEN person % 10 < 9 THEN 12 ELSE 61 END * 900 AS tools_bytes,
  8.0 + 60.0 * POWER(u(c, 'q'), 4) AS queue_ms, 4.0 + 30.0 * POWER(u(c, 'r'), 4) AS pre_call_ms,
  14.0 + 120.0 * POWER(u(c, 'v'), 3) AS overhead_ms, 0.4 + 2.0 * POWER(u(c, 'w'), 5) AS plugin_ms,
  input / 1000.0 AS count_ms, 3 AS count_calls, 3 * input AS count_tokens,
  LEAST(200.0 + 3000.0 * POWER(u(c, 'x'), 3), seconds * 500) AS ttft_ms, seconds * 1000 AS duration_ms,
  CASE WHEN u(c, 'y') < 0.01 THEN 2 ELSE 1 END AS attempts,
  CASE WHEN u(c, 'f') < 0.985 THEN NULL WHEN u(c, 'f') < 0.992 THEN 'Timeout' WHEN u(c, 'f') < 0.995 THEN 'RateLimitError' ELSE 'ClientDisconnected' END AS error_class,
  FALSE AS response_cache_hit, '1.108.7' AS litellm_version, '0.1.0' AS plugin_version,
  CAST($monday AS TIMESTAMP) + INTERVAL 9 DAY AS collected_at, '1-0' AS stream_id
FROM done
"""

#: A counter of energy for every board, once a minute: idle at 120 W, at work in working hours up to 620 W.
_POWER = """
CREATE OR REPLACE TEMP TABLE power AS
WITH minute AS (
  SELECT CAST($monday AS TIMESTAMP) + TO_MINUTES(m) AS ts, m, m % 1440 AS of_day, m // 1440 AS day FROM RANGE(7 * 1440) AS r(m)
),
watts AS (
  SELECT ts, m, 120.0 + CASE WHEN day < 5 THEN 500.0 ELSE 90.0 END
    * GREATEST(0.0, SIN(PI() * (of_day - 480) / 660.0)) * CASE WHEN of_day BETWEEN 480 AND 1140 THEN 1 ELSE 0 END AS w
  FROM minute
),
energy AS (SELECT ts, SUM(w * 60000.0) OVER (ORDER BY m) AS mj FROM watts)
SELECT e.ts, 'node-1' AS target, 'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION' AS name, e.mj AS value, 'counter' AS kind,
  '{"UUID": "GPU-' || g || '"}' AS labels
FROM energy AS e, RANGE($gpus) AS r(g)
"""
