"""The rows that published quantities are made of: views over marts and facts, each with its business day."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

_WHO: Final = "team_id, key_alias, client, model_group, profile"
_RETENTIONS: Final = {"∞": ("", "inf"), "3600 s": ("3600_", "3600"), "300 s": ("300_", "300")}
_REGIMES: Final = {
    "category": "category",
    "position": "position",
    "break": "break_reason",
    "idle": "idle_bin",
}
#: Ways in which a call is lost or less than a plain success, and the column that counts them.
_LOSSES: Final = {
    "known from its ledger row alone": "row_only_calls",
    "known from its event alone": "event_only_calls",
    "still open": "open_calls",
    "aborted": "aborted_calls",
    "failed": "failed_calls",
    "rejected": "rejected_calls",
    "without a session": "calls - session_calls",
}
#: What tells a visit's profile, and the column that counts its calls.
_TOLD_BY: Final = {
    "tool names": "profile_tools_calls",
    "loops": "profile_loops_calls",
    "tokens a turn": "profile_tokens_calls",
    "nothing": "profile_none_calls",
}
_TOOL_KINDS: Final = {"read": "reads", "edit": "edits", "run": "runs", "other": "others"}
_PHASES: Final = {
    "queue": "queue_ms",
    "pre_call": "pre_call_ms",
    "overhead": "overhead_ms",
    "plugin": "plugin_ms",
    "count": "count_ms",
}
_CARRIED: Final = {
    "session": "session_calls",
    "turn": "turn_calls",
    "user": "user_calls",
    "prompt length": "input_calls",
    "cached tokens": "cached_calls",
    "prefix chain": "chain_calls",
    "first token": "ttft_calls",
    "end": "ended_calls",
    "token counting": "counted_calls",
}

_CALL: Final = f"""
SELECT
  d.business_day, c.team_id, c.key_alias, c.client, c.model_group,
  CASE WHEN c.session_key IS NULL THEN 'unattributed' ELSE COALESCE(v.profile, 'unknown') END AS profile,
  v.team_id AS visit_team_id, v.key_alias AS visit_key_alias, v.client AS visit_client,
  v.model_group AS visit_model_group,
  c.is_attended, c.is_engine, c.outcome, c.agent_kind, c.input_tokens, c.new_tokens, c.tokens_per_s,
  c.ttft_ms, c.count_ms, {", ".join(f"c.{column}" for column in _PHASES.values() if column != "count_ms")},
  CASE WHEN s.provider IS NULL THEN 1 ELSE 0 END AS believed,
  p.label AS prompt_bucket, t.label AS catalogue_bucket,
  CASE WHEN c.is_engine = 1 AND c.end_at IS NOT NULL
    THEN DATE_DIFF('microsecond', c.start_at, c.end_at) / 3.6e9 ELSE 0 END AS flight_hours
FROM fct_call AS c
JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
LEFT JOIN mart_visit AS v
  ON v.session_key = c.session_key AND c.start_at >= v.start_at AND c.start_at <= v.end_at
LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
LEFT JOIN prm_prompt_size AS p ON c.input_tokens > p.above AND c.input_tokens <= p.up_to
LEFT JOIN prm_catalogue_size AS t
  ON COALESCE(c.tools_bytes, 0) > t.above AND COALESCE(c.tools_bytes, 0) <= t.up_to
WHERE c.start_at >= (SELECT MIN(start_at) FROM prm_hour) AND c.start_at < (SELECT MAX(end_at) FROM prm_hour)
"""
_VISIT: Final = """
SELECT v.* FROM mart_visit AS v
WHERE v.is_attended = 1 AND v.business_day IS NOT NULL
  AND v.start_at >= (SELECT MIN(start_at) FROM prm_hour) AND v.start_at < (SELECT MAX(end_at) FROM prm_hour)
"""
_TURN: Final = """
SELECT
  v.business_day, v.team_id, v.key_alias, v.client, v.model_group, v.profile,
  DATE_DIFF('microsecond', t.start_at, t.end_at) / 1e6 AS latency_s
FROM rel_visit AS v
JOIN fct_turn AS t ON t.session_key = v.session_key AND t.start_at >= v.start_at AND t.start_at <= v.end_at
WHERE t.agent_kind = 'main'
"""
_POTENTIAL: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{label}' AS retention, "
    f"chain_{infix}input_tokens AS chain_input_tokens, potential_{name}_tokens AS potential_tokens "
    "FROM mart_call_sum"
    for label, (infix, name) in _RETENTIONS.items()
)
_REGIME: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{kind}: ' || {column} AS regime, cached_tokens, cached_input_tokens, "
    f"potential_inf_tokens, chain_input_tokens FROM mart_prefix_cell WHERE {column} IS NOT NULL"
    for kind, column in _REGIMES.items()
)
_LOSS: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{name}' AS loss, {column} AS lost, calls FROM mart_call_sum"
    for name, column in _LOSSES.items()
)
_PHASE: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{name}' AS phase, {column} AS ms FROM rel_call WHERE {column} >= 0"
    for name, column in _PHASES.items()
)
_PROFILE: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{name}' AS told_by, {column} AS told, calls FROM mart_call_sum"
    for name, column in _TOLD_BY.items()
)
_TOOLS: Final = " UNION ALL ".join(
    f"SELECT business_day, {_WHO}, '{name}' AS kind, tool_{column} AS made, "
    "tool_reads + tool_edits + tool_runs + tool_others AS tool_calls FROM mart_call_sum WHERE told_calls > 0"
    for name, column in _TOOL_KINDS.items()
)
_COVERAGE: Final = " UNION ALL ".join(
    "SELECT business_day, client, "
    f"route || ', LiteLLM ' || litellm_version || ': {name}' AS what, {column} AS carrying, calls "
    "FROM mart_coverage"
    for name, column in _CARRIED.items()
)
_ENGINE: Final = """
SELECT d.business_day, e.hour, e.hit_tokens, e.query_tokens
FROM mart_engine_prefix AS e JOIN prm_business_day AS d ON e.hour >= d.start_at AND e.hour < d.end_at
"""
_ENGINE_BESIDE: Final = """
WITH engine AS (
  SELECT business_day, hour, SUM(hit_tokens) AS hit_tokens, SUM(query_tokens) AS query_tokens
  FROM rel_engine GROUP BY business_day, hour
),
gateway AS (
  SELECT DATE_TRUNC('hour', start_at) AS hour, SUM(cached_tokens) AS cached_tokens,
    SUM(input_tokens) AS input_tokens
  FROM fct_call
  WHERE is_engine = 1 AND is_external = 0 AND cached_tokens IS NOT NULL AND input_tokens > 0
  GROUP BY DATE_TRUNC('hour', start_at)
)
SELECT e.business_day, e.hit_tokens, e.query_tokens, g.cached_tokens, g.input_tokens
FROM engine AS e JOIN gateway AS g ON g.hour = e.hour WHERE e.query_tokens > 0
"""
_LEVEL: Final = """
SELECT d.business_day, l.hour_start, l.calls_in_flight, l.seconds
FROM mart_concurrency_level AS l
JOIN prm_business_day AS d ON l.hour_start >= d.start_at AND l.hour_start < d.end_at
"""
_SCOPES: Final = {
    "all": "'all'",
    "team": "visit_team_id",
    "key": "visit_key_alias",
    "client": "visit_client",
    "model": "visit_model_group",
    "profile": "profile",
}
#: Attended calls belong to who their visit belongs to, as the human-hours do.
_HUMAN: Final = (
    "WITH work AS ("
    + " UNION ALL ".join(
        f"SELECT business_day, '{scope}' AS scope, {column} AS member, COUNT(*) AS calls, SUM(CASE WHEN "
        "agent_kind = 'main' AND outcome <> 'failure' THEN flight_hours ELSE 0 END) AS main_flight_hours "
        f"FROM rel_call WHERE is_attended = 1 AND {column} IS NOT NULL GROUP BY business_day, {column}"
        for scope, column in _SCOPES.items()
    )
    + """)
SELECT w.business_day, w.scope, w.member, g.seconds AS cap_s, w.calls, w.main_flight_hours, 0.0 AS human_hours
FROM work AS w CROSS JOIN prm_idle_cap AS g
UNION ALL
SELECT business_day, scope, scope_value, idle_cap_s, 0, 0.0, human_hours FROM mart_human_hour
"""
)

#: Relation -> its query; a relation that reads another one stands below it.
RELATIONS: Final = {
    "call": _CALL,
    "visit": _VISIT,
    "turn": _TURN,
    "call_sum": "SELECT * FROM mart_call_sum",
    "in_turn": "SELECT * FROM mart_in_turn",
    "potential": _POTENTIAL,
    "regime": _REGIME,
    "loss": _LOSS,
    "profile": _PROFILE,
    "tools": _TOOLS,
    "phase": _PHASE,
    "coverage": _COVERAGE,
    "engine": _ENGINE,
    "engine_beside": _ENGINE_BESIDE,
    "level": _LEVEL,
    "human": _HUMAN,
}


def bind(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> None:
    """Create the views ``rel_…`` and the table of periods; the marts must be built."""
    for name, query in RELATIONS.items():
        con.execute(f"CREATE OR REPLACE TEMP VIEW rel_{name} AS {query}")
    con.execute(
        """
        CREATE OR REPLACE TEMP TABLE series_day AS
        SELECT
          business_day,
          CAST(DATE_TRUNC('week', business_day) AS DATE) AS week,
          DATE_DIFF('microsecond', GREATEST(start_at, $start), LEAST(end_at, $end)) / 3.6e9 AS hours
        FROM prm_business_day
        """,
        {"start": window.start, "end": window.end},
    )
