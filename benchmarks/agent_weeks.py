"""Weeks of made-up agent work, written straight into the raw tables of a lake.

Sessions start over the working day (weekends bring a quarter), have a few turns with a heavy tail, some are
taken up again days later; prompts grow by what each call adds and shrink at a compaction; some sessions
switch the model, some turns run a subagent beside them, some calls fail, are aborted, refused or serve the
client. Every call is a record with all columns of the event contract; by choice an open record and a ledger
row stand beside it. The numbers are drawn from one seed, by numpy, one starting day of sessions at a time;
DuckDB spells them out into columns and writes the files.

The marginals follow published ones: about 40 calls a session, half of the turns with two calls or fewer,
median prompts of 65K tokens and 220 generated, idle of 3 minutes between turns with a long tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gateway_plugin.event import FIELDS
from pipeline.schema import SCHEMAS

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

FIRST_DAY: Final = date(2026, 3, 2)  # a Monday
_DAY_S: Final = 86_400.0
_CALLS_PER_SESSION: Final = 39.6
_WEEKEND_SHARE: Final = 0.25
_CALLS_PER_USER_DAY: Final = 600.0
_COMPACTED_AT: Final = 160_000
#: what stays of a session's calls past the last day
_LONGEST_DAYS: Final = 21
#: People who mostly read, edit and run commands (41.7, 30.4 and 11.0 % of published users), and where reads,
#: edits and commands end among the tool calls of each of them.
_TOOL_USERS: Final = np.array([41.7, 30.4, 11.0]) / 83.1
_TOOL_KINDS: Final = np.array([[0.75, 0.83, 0.95], [0.50, 0.80, 0.95], [0.30, 0.35, 0.95]])


@dataclass(frozen=True, slots=True)
class Traffic:
    """About how many calls a weekday, over how many days, and what stands beside each event."""

    calls_per_day: float
    days: int
    seed: int = 1
    open_records: bool = False
    ledger_share: float = 0.0


def for_week(calls: int, **more: Any) -> Traffic:
    """Return a week of about *calls* calls."""
    return Traffic(calls / (5 + 2 * _WEEKEND_SHARE), 7, **more)


def write(lake: Path, traffic: Traffic) -> int:
    """Write the traffic into *lake*; return the number of calls."""
    import duckdb

    total = 0
    con = duckdb.connect()
    try:
        con.execute(
            "SET TimeZone = 'UTC'; SET enable_progress_bar = false; SET preserve_insertion_order = true"
        )
        for day in range(traffic.days):
            rng = np.random.default_rng([traffic.seed, day])
            calls = _calls(rng, traffic, day)
            total += len(calls["n"])
            _write_day(con, lake, traffic, day, calls)
    finally:
        con.close()
    return total


def _calls(rng: np.random.Generator, traffic: Traffic, day: int) -> dict[str, NDArray[Any]]:
    """Return the calls of the sessions that start on *day*, as columns in order of time."""
    weekend = (FIRST_DAY + timedelta(days=day)).weekday() >= 5
    wanted = traffic.calls_per_day * (_WEEKEND_SHARE if weekend else 1.0)
    sessions = max(1, int(rng.poisson(wanted / _CALLS_PER_SESSION)))
    users = max(4, int(traffic.calls_per_day / _CALLS_PER_USER_DAY))
    turns = np.minimum(1 + rng.negative_binomial(0.6, 0.11, sessions), 200)
    turn_session = np.repeat(np.arange(sessions), turns)
    count = len(turn_session)
    # Half of the turns are one or two calls, the others a loop with a heavy tail.
    loop = rng.random(count) < 0.5
    length = np.where(loop, 2 + rng.geometric(1 / 10.5, count), 1 + (rng.random(count) < 0.5))
    turn = np.repeat(np.arange(count), length)
    n = len(turn)
    session = turn_session[turn]
    first_of_turn = np.concatenate(([True], turn[1:] != turn[:-1]))
    first_of_session = np.concatenate(([True], session[1:] != session[:-1]))
    call_index = _position(first_of_turn) + 1
    turn_index = turn - _starts(turn_session)[turn] + 1
    place = _position(first_of_session)

    output = np.clip(rng.lognormal(5.4, 1.0, n), 1, 16_000).astype(np.int64)
    speed = rng.lognormal(4.1, 0.35, n)
    ttft = rng.lognormal(6.9, 0.5, n)
    duration = ttft + output / speed * 1000
    gap = np.where(
        first_of_turn,
        np.minimum(rng.lognormal(5.15, 1.7, n), 6 * 3600),
        np.minimum(rng.lognormal(0.9, 1.2, n), 1800),
    )
    later = first_of_turn & (rng.random(n) < 0.02)
    gap[later] += rng.integers(1, 4, int(later.sum())) * _DAY_S
    gap[first_of_session] = 0

    team = rng.integers(0, 12, sessions)
    user = rng.integers(0, users, sessions)
    client = rng.choice(5, sessions, p=[0.5, 0.25, 0.12, 0.1, 0.03])
    model = rng.choice(4, sessions, p=[0.45, 0.3, 0.2, 0.05])
    service = rng.random(sessions) < 0.05
    start = np.clip(rng.normal(13.5, 3.2, sessions), 0, 23.99) * 3600
    switch_at = np.where(rng.random(sessions) < 0.064, rng.integers(2, 40, sessions), 10**6)
    has_subagent = rng.random(count) < 0.06
    beside = has_subagent[turn] & (call_index >= 3) & (call_index % 2 == 1)

    began = _running(np.where(first_of_session, 0.0, gap + np.roll(duration, 1) / 1000), first_of_session)
    at = day * _DAY_S + start[session] + began
    grown = np.clip(rng.lognormal(6.9, 0.9, n), 50, 30_000)
    base = rng.integers(14_000, 34_000, sessions)[session]
    size = _running(np.where(first_of_session, 0.0, grown + np.roll(output, 1)), first_of_session)
    room = _COMPACTED_AT - base
    epoch = np.floor(size / room).astype(np.int64)
    tokens = (base + size - epoch * room + np.where(epoch > 0, 6_000, 0)).astype(np.int64)
    compaction = ~first_of_session & (epoch > np.roll(epoch, 1))
    tokens = np.where(beside, 9_000 + (tokens // 6), tokens)
    model_of = np.where(place >= switch_at[session], (model[session] + 1) % 4, model[session])
    switched = ~first_of_session & (model_of != np.roll(model_of, 1))
    previous = np.where(first_of_session | switched, 0, np.roll(tokens, 1))
    shared = np.where(compaction, 9_000, np.minimum(previous, tokens))
    draw = rng.random(n)
    outcome = np.select([draw < 0.015, draw < 0.027, draw < 0.031], [1, 2, 3], 0)
    auxiliary = ~first_of_session & (rng.random(n) < 0.03)
    initiator = np.select([auxiliary, first_of_turn], [2, 0], 1)
    initiator = np.where(service[session] & (initiator == 0), 1, initiator)
    realised = np.where(gap > 600, 0.05, np.where(gap > 60, 0.7, 0.97))
    cached = (shared * realised * np.where(rng.random(n) < 0.05, 0, 1)).astype(np.int64)
    calls_tools = ~np.concatenate((first_of_turn[1:], [True])) & ~auxiliary
    more = rng.spawn(1)[0]  # leaves what is drawn above and below as it was
    bounds = _TOOL_KINDS[more.choice(3, sessions, p=_TOOL_USERS)][session]
    tool_kind = np.where(calls_tools, 1 + (more.random(n)[:, None] > bounds).sum(axis=1), 0)
    end = traffic.days * _DAY_S
    kept = np.flatnonzero((at < end) & (at < (day + _LONGEST_DAYS) * _DAY_S))
    kept = kept[np.argsort(at[kept], kind="stable")]
    columns: dict[str, NDArray[Any]] = {
        "n": np.arange(n), "session": session, "turn": turn,
        "call_index": call_index, "turn_index": turn_index,
        "place": place, "started_us": (at * 1e6).astype(np.int64), "duration_ms": np.round(duration, 3),
        "ttft_ms": np.round(ttft, 3), "gap_ms": np.round(gap * 1000, 3), "is_first": first_of_session,
        "input_tokens": tokens, "output_tokens": output, "shared": shared, "cached": cached, "beside": beside,
        "model": np.where(auxiliary, 3, model_of), "team": team[session], "users": user[session],
        "client": client[session], "service": service[session], "outcome": outcome, "initiator": initiator,
        "compaction": compaction, "switched": switched, "tool_kind": tool_kind,
        "luck": np.round(rng.random(n), 6),
    }  # fmt: skip
    return {name: values[kept] for name, values in columns.items()}


def _position(opens: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the place of each item since the last opening, from 0."""
    index = np.arange(len(opens))
    return index - np.maximum.accumulate(np.where(opens, index, 0))


def _starts(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each item the index of the first item of its group."""
    opens = np.concatenate(([True], groups[1:] != groups[:-1]))
    return np.maximum.accumulate(np.where(opens, np.arange(len(groups)), 0))


def _running(steps: NDArray[np.float64], opens: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the running sum of *steps*, begun anew at every opening."""
    total = np.cumsum(steps)
    return total - total[np.maximum.accumulate(np.where(opens, np.arange(len(opens)), 0))]


#: What every record of a call knows from its request.
_REQUEST: Final = {
    "schema": "1",
    "event_id": "id",
    "started_us": "started",
    "session_key": "session_key",
    "session_id": "session_id",
    "session_source": "'x-claude-code-session-id'",
    "session_evidence": "CASE client WHEN 4 THEN 'E4' WHEN 2 THEN 'E2' ELSE 'E1' END",
    "agent_id": "CASE WHEN beside THEN 'agent-' || turn ELSE 'main' END",
    "agent_kind": "CASE WHEN beside THEN 'subagent' ELSE 'main' END",
    "parent_agent_id": "CASE WHEN beside THEN 'main' END",
    "turn_id": (
        "CASE WHEN client <> 3 "
        "THEN substr(md5('t' || day || '-' || turn || CASE WHEN beside THEN 's' ELSE '' END), 1, 20) END"
    ),
    "turn_index": "turn_index",
    "call_index": "call_index",
    "turn_evidence": "CASE client WHEN 0 THEN 'E1' WHEN 1 THEN 'E1' WHEN 2 THEN 'E2' ELSE 'E3' END",
    "initiator": "['user', 'agent', 'auxiliary'][initiator + 1]",
    "compaction_hint": "compaction",
    "client": "['claude-code', 'codex', 'opencode', 'copilot', 'other'][client + 1]",
    "client_version": "['2.1.283', '2.1.290', '0.48.0', '1.2.7'][1 + (session % 4)]",
    "user_hash": "user_hash",
    "user_source": "'end_user'",
    "service_key": "service",
    "key_alias": "'key-' || users",
    "team_id": "'team-' || team",
    "route": "['messages', 'responses', 'chat', 'chat', 'chat'][client + 1]",
    "call_type": "'acompletion'",
    "stream": "luck < 0.97",
    "model_group": "['coder-large', 'coder-medium', 'sonnet', 'small'][model + 1]",
    "litellm_call_id": "litellm_id",
    "litellm_version": "'1.108.7'",
    "plugin_version": "'1.0.0'",
    "message_count": "2 * place + 2",
    "prompt_bytes": "input_tokens * 4",
    "shared_bytes": "shared * 4",
    "prefix_steps": (
        "CASE WHEN is_first OR shared = 0 THEN '[]' "
        "WHEN luck < 0.8 THEN printf('[[%.3f,%d]]', gap_ms / 1000, shared * 4) "
        "ELSE printf('[[%.3f,%d],[%.3f,%d]]', gap_ms / 1000, shared * 3, gap_ms / 1000 + 400 * luck, "
        "shared * 4) END"
    ),
    "break_reason": (
        "CASE WHEN is_first THEN 'first' WHEN switched THEN 'model_switch' "
        "WHEN compaction THEN 'compaction' WHEN luck > 0.98 THEN 'history_edited' ELSE 'none' END"
    ),
    "idle_ms": "CASE WHEN NOT is_first THEN gap_ms END",
    "previous_event_id": "CASE WHEN NOT is_first THEN previous_id END",
    "system_digest": "substr(md5('s' || client), 1, 16)",
    "tools_digest": "substr(md5('c' || session % 40), 1, 16)",
    "head_digest": "substr(session_key, 1, 16)",
    "tool_count": "20 + session % 40",
    "tools_bytes": "(20 + session % 40) * 900",
    "state": "CASE WHEN luck < 0.02 THEN 'late' ELSE 'ok' END",
    "truncated": "false",
}
#: What the final record adds.
_FINAL: Final = {
    "stage": "'final'",
    "outcome": "['success', 'failure', 'aborted', 'rejected'][outcome + 1]",
    "ended_us": "started + CAST(duration_ms * 1000 AS BIGINT)",
    "model": "['qwen3-coder-480b', 'glm-5', 'claude-sonnet-5', 'qwen3-4b'][model + 1]",
    "deployment_id": "'dep-' || (model * 4 + session % 4)",
    "provider": "['hosted_vllm', 'hosted_vllm', 'anthropic', 'hosted_vllm'][model + 1]",
    "input_tokens": "CASE WHEN outcome = 0 THEN input_tokens END",
    "cached_tokens": "CASE WHEN outcome = 0 AND session % 10 > 0 THEN cached END",
    "cache_write_tokens": "CASE WHEN outcome = 0 AND model = 2 THEN input_tokens - shared END",
    "output_tokens": "CASE WHEN outcome = 0 THEN output_tokens END",
    "reasoning_tokens": "CASE WHEN outcome = 0 AND model = 2 THEN output_tokens // 3 END",
    "usage_source": "CASE outcome WHEN 0 THEN 'provider' ELSE 'none' END",
    # Every call of a turn but the last calls one tool.
    "tool_reads": "CASE WHEN outcome = 0 THEN CAST(tool_kind = 1 AS INTEGER) END",
    "tool_edits": "CASE WHEN outcome = 0 THEN CAST(tool_kind = 2 AS INTEGER) END",
    "tool_runs": "CASE WHEN outcome = 0 THEN CAST(tool_kind = 3 AS INTEGER) END",
    "tool_others": "CASE WHEN outcome = 0 THEN CAST(tool_kind = 4 AS INTEGER) END",
    "queue_ms": "round(2 + luck * 6, 3)",
    "pre_call_ms": "round(3 + luck * 9, 3)",
    "overhead_ms": "round(9 + luck * 22, 3)",
    "ttft_ms": "CASE WHEN outcome = 0 AND luck < 0.97 THEN ttft_ms END",
    "duration_ms": "duration_ms",
    "plugin_ms": "round(0.2 + luck, 3)",
    "tool_ms": "CASE WHEN client = 0 AND call_index > 1 THEN round(gap_ms * 0.8, 3) END",
    "count_ms": "round(luck * 12, 3)",
    "count_calls": "3",
    "count_auth_ms": "round(luck * 4, 3)",
    "count_router_ms": "round(luck * 6, 3)",
    "count_post_ms": "round(luck * 2, 3)",
    "count_tokenizer": "'tiktoken'",
    "count_wait_ms": "0.0",
    "count_on_loop_ms": "round(luck * 12, 3)",
    "count_tokens": "input_tokens * 3",
    "count_catalogue_tokens": "(20 + session % 40) * 200",
    "attempts": "1 + CAST(luck > 0.99 AS INTEGER)",
    "error_class": "CASE outcome WHEN 1 THEN 'Timeout' WHEN 3 THEN 'BudgetExceeded' END",
    "status_code": "CASE outcome WHEN 1 THEN 504 WHEN 3 THEN 400 END",
    "response_cache_hit": "luck > 0.995",
    "degraded": "false",
}
_OPEN: Final = {"stage": "'open'", "outcome": "'open'"}
_ROW: Final = {
    "request_id": "'chatcmpl-' || id",
    "litellm_call_id": "litellm_id",
    "call_type": "'acompletion'",
    "key_hash": "md5('k' || users)",
    "spend": "input_tokens * 0.000003",
    "prompt_tokens": "CASE WHEN outcome = 0 THEN input_tokens ELSE 0 END",
    "completion_tokens": "CASE WHEN outcome = 0 THEN output_tokens ELSE 0 END",
    "total_tokens": "CASE WHEN outcome = 0 THEN input_tokens + output_tokens ELSE 0 END",
    "start_time": "make_timestamp(started)",
    "end_time": "make_timestamp(started + CAST(duration_ms * 1000 AS BIGINT))",
    "completion_start_time": "make_timestamp(started + CAST(ttft_ms * 1000 AS BIGINT))",
    "model": _FINAL["model"],
    "model_id": _FINAL["deployment_id"],
    "model_group": _REQUEST["model_group"],
    "provider": _FINAL["provider"],
    "user_hash": "user_hash",
    "team_id": "'team-' || team",
    "row_session_id": "session_id",
    "status": "CASE outcome WHEN 0 THEN 'success' ELSE 'failure' END",
    "usage_input": _FINAL["input_tokens"],
    "usage_cached": _FINAL["cached_tokens"],
    "usage_output": _FINAL["output_tokens"],
    "extracted_at": "make_timestamp(started) + INTERVAL 1 HOUR",
}


def _write_day(
    con: duckdb.DuckDBPyConnection, lake: Path, traffic: Traffic, day: int, calls: dict[str, NDArray[Any]]
) -> None:
    epoch_us = (FIRST_DAY - date(1970, 1, 1)).days * 86_400_000_000
    con.register("drawn", calls)
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE call AS
        WITH who AS (
          SELECT session, md5('s{traffic.seed}-{day}-' || session) AS session_key,
            CAST(CAST(md5('i{traffic.seed}-{day}-' || session) AS UUID) AS VARCHAR) AS session_id
          FROM (SELECT DISTINCT session FROM drawn)
        )
        SELECT d.*, {day} AS day, {epoch_us} + d.started_us AS started, w.session_key, w.session_id,
          md5('u' || d.users) AS user_hash,
          {_uuid(f"{epoch_us} + d.started_us", "d.n", day)} AS id,
          {_uuid(f"{epoch_us} + d.started_us - CAST(gap_ms * 1000 AS BIGINT)", "d.n - 1", day)}
            AS previous_id,
          substr(md5('l{traffic.seed}-{day}-' || d.n), 1, 32) AS litellm_id
        FROM drawn AS d JOIN who AS w ON w.session = d.session ORDER BY d.started_us
        """
    )
    con.unregister("drawn")
    records = [(_FINAL, "final", "true")]
    if traffic.open_records:
        records.append((_OPEN, "open", "true"))
    for more, name, kept in records:
        known = {**_REQUEST, **more}
        columns = [
            f'CAST({known.get(f.name, "NULL")} AS {SCHEMAS["raw/events"][f.name]}) AS "{f.name}"'
            for f in FIELDS
        ]
        columns += [f"(started // 1000) || '-{0 if name == 'open' else 1}' AS stream_id"]
        columns += ["make_timestamp(started + CAST(duration_ms * 1000 AS BIGINT) + 2000000) AS collected_at"]
        _copy(con, lake / "raw/events", f"{name}-{day:03d}", ", ".join(columns), kept)
    if traffic.ledger_share > 0:
        known = {**_REQUEST, **_FINAL}
        names = [f.name for f in FIELDS if f.in_row]
        packed = "CAST(to_json({" + ", ".join(f"{n}: {known[n]}" for n in names) + "}) AS VARCHAR)"
        row = {**_ROW, "aw": packed}
        columns = [
            f'CAST({row.get(n, "NULL")} AS {k}) AS "{n}"' for n, k in SCHEMAS["raw/spend_logs"].items()
        ]
        _copy(
            con,
            lake / "raw/spend_logs",
            f"rows-{day:03d}",
            ", ".join(columns),
            f"luck < {traffic.ledger_share}",
        )


def _copy(con: duckdb.DuckDBPyConnection, folder: Path, name: str, columns: str, kept: str) -> None:
    days = con.execute(
        "SELECT DISTINCT CAST(make_timestamp(started) AS DATE) FROM call ORDER BY 1"
    ).fetchall()
    for (day,) in days:
        target = folder / f"date={day.isoformat()}"
        target.mkdir(parents=True, exist_ok=True)
        where = f"{kept} AND CAST(make_timestamp(started) AS DATE) = DATE '{day.isoformat()}'"
        con.execute(
            f"COPY (SELECT {columns} FROM call WHERE {where}) TO '{target / name}.parquet' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )


def _uuid(us: str, serial: str, day: int) -> str:
    """A UUIDv7 of an instant and a number, as an SQL expression."""
    return (
        f"printf('%08x-%04x-7%03x-%04x-%012x', ({us}) // 65536000, (({us}) // 1000) % 65536, "
        f"({serial}) % 4096, 32768 + (({serial}) // 4096) % 16384, "
        f"(({serial}) * 2654435761 + {day} * 40503) % 281474976710656)"
    )
