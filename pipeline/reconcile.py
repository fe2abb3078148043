"""Compares the three books of a window: our events, LiteLLM's ledger rows, and its daily sums.

Every call of the window falls into one class of difference, first that applies; a class says why it is there
and whether that explains it. What no class explains is counted against the threshold.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pipeline.differences import CLASSES, EVENTS_ROWS, ROWS_LAKE, Difference, Reconciliation
from pipeline.errors import ConfigError
from pipeline.extract import daily_spend
from pipeline.extract.daily_spend import Ledger
from pipeline.extract.traces.source import TAG
from pipeline.lake import Lake, connect
from pipeline.settings import Settings
from pipeline.sql import binding, models, parameters

if TYPE_CHECKING:
    import duckdb

#: A row is written in batches: what ended this shortly before the ledger was read may not be in it.
_SETTLE: Final = timedelta(minutes=5)


def reconcile(
    settings: Settings, *, since: date | None = None, until: date | None = None, now: datetime | None = None
) -> Reconciliation:
    """Compare the books of the UTC days in ``[since, until)``; default: every day of the lake.

    Raises:
        ConfigError: there is no lake, the window is empty, or no database is named.
        UnreachableError: the database does not answer.
    """
    lake = Lake(settings.lake)
    now = now or datetime.now(UTC).replace(tzinfo=None)
    days = {*lake.dates("raw/events"), *lake.dates("raw/spend_logs")}
    if not days and (since is None or until is None):
        raise ConfigError(f"The lake {lake.root} holds no event and no row.", next_step="agentwatt run")
    first, last = since or min(days), until or max(days) + timedelta(days=1)
    if first >= last:
        raise ConfigError(f"The window {first} to {last} holds no day.")
    ledger = asyncio.run(daily_spend.read(settings, first, last))
    found = Reconciliation(first, last)
    with connect() as con:
        _stage(con, lake, settings, first, last)
        _count(con, found, ledger)
        classes, extra_rows = _calls(con, _last_reading(lake, now))
    _split_missing(classes, ledger, extra_rows)
    for name, by_day in classes.items():
        _add(found, EVENTS_ROWS, name, sum(n for n, _ in by_day.values()), [s for _, s in by_day.values()])
    _lake_and_database(found, ledger, lake, first, last)
    for table in ledger.tables:
        _daily(found, ledger, table, extra_rows)
    if not ledger.tables:
        found.notices.append("This database has no daily spend tables: only events and rows were compared.")
    found.notices += [f"{name} was not compared: {why}." for name, why in ledger.skipped.items()]
    order = list(CLASSES)
    found.differences.sort(key=lambda d: (d.compared != EVENTS_ROWS, d.compared, order.index(d.name)))
    return found


def _stage(con: duckdb.DuckDBPyConnection, lake: Lake, settings: Settings, first: date, last: date) -> None:
    """Bind the raw records of the window and a day on either side, without imported calls; stage them."""
    span = [first + timedelta(days=n) for n in range(-1, (last - first).days + 1)]
    for relation in ("raw_event", "raw_spend_log"):
        binding.bind_raw(con, relation, binding.files(lake.root, binding.RAW[relation][0], span))
    values = parameters.bind_conventions(con, settings)
    models.run(con, ("stg_record", "stg_event"), values)
    con.execute(
        "CREATE TEMP TABLE own_event AS SELECT * FROM stg_event "
        "WHERE NOT COALESCE(starts_with(plugin_version, $tag), FALSE)",
        {"tag": TAG},
    )
    con.execute("DROP VIEW stg_event")
    con.execute("ALTER TABLE own_event RENAME TO stg_event")
    models.run(con, ("stg_row", "stg_row_match"), values)
    con.execute(_JOINED, {"first": datetime(first.year, first.month, first.day),
                          "last": datetime(last.year, last.month, last.day)})  # fmt: skip


#: One row a call of the window: its event, if any, and its ledger rows, if any.
_JOINED: Final = """
CREATE OR REPLACE TEMP TABLE joined AS
WITH shared AS (
  SELECT litellm_call_id FROM stg_event
  WHERE litellm_call_id IS NOT NULL AND litellm_call_id <> '' GROUP BY litellm_call_id
  HAVING COUNT(DISTINCT event_id) > 1
),
row_call AS (
  SELECT
    call_id,
    COUNT(*) AS row_count,
    MIN(start_time) AS start_time,
    MAX(CASE WHEN status = 'success' THEN 1 ELSE 0 END) AS row_success,
    MAX(CASE WHEN cache_hit THEN 1 ELSE 0 END) AS row_cache_hit,
    MAX(CASE WHEN event_id IS NOT NULL THEN 1 ELSE 0 END) AS has_event_id,
    MAX(has_object) AS has_object,
    MAX(call_type) AS call_type,
    MAX(litellm_call_id) AS litellm_call_id,
    MIN(request_id) AS request_id
  FROM stg_row_match GROUP BY call_id
)
SELECT
  COALESCE(e.event_id, r.request_id) AS id,
  CAST(COALESCE(MAKE_TIMESTAMP(e.started_us), r.start_time) AS DATE) AS day,
  CASE WHEN e.event_id IS NOT NULL THEN 1 ELSE 0 END AS has_event,
  COALESCE(r.row_count, 0) AS row_count,
  e.outcome,
  MAKE_TIMESTAMP(COALESCE(e.ended_us, e.started_us)) AS ended_at,
  GREATEST(COALESCE(e.response_cache_hit, 0), COALESCE(r.row_cache_hit, 0)) AS cache_hit,
  COALESCE(r.row_success, 0) AS row_success,
  COALESCE(r.has_event_id, 0) AS has_event_id,
  COALESCE(r.has_object, 0) AS has_object,
  r.call_type,
  CASE WHEN s.litellm_call_id IS NOT NULL THEN 1 ELSE 0 END AS is_shared
FROM stg_event AS e
FULL OUTER JOIN row_call AS r ON r.call_id = e.event_id
LEFT JOIN shared AS s ON s.litellm_call_id = COALESCE(e.litellm_call_id, r.litellm_call_id)
WHERE COALESCE(MAKE_TIMESTAMP(e.started_us), r.start_time) >= $first
  AND COALESCE(MAKE_TIMESTAMP(e.started_us), r.start_time) < $last
"""

_CLASSIFIED: Final = """
SELECT
  CASE
    WHEN has_event = 1 AND row_count > 0 THEN CASE
      WHEN outcome IN ('open', 'aborted') AND row_success = 1 THEN 'ended after its last event'
      WHEN cache_hit = 1 THEN 'response-cache hit'
      ELSE 'agreed'
    END
    WHEN has_event = 1 THEN CASE
      WHEN outcome IN ('open', 'aborted') THEN outcome
      WHEN outcome = 'rejected' THEN 'rejected after the hook'
      WHEN ended_at > $reading THEN 'too fresh'
      WHEN is_shared = 1 THEN 'shared call id'
      WHEN outcome = 'failure' THEN 'failure without a row'
      ELSE 'unknown to LiteLLM''s ledger'
    END
    WHEN has_event_id = 1 THEN 'event lost'
    WHEN is_shared = 1 THEN 'shared call id'
    WHEN row_success = 0 AND has_object = 0 THEN 'rejected before the hook'
    WHEN call_type IS NOT NULL AND call_type <> '' AND call_type NOT IN (
      'completion', 'acompletion', 'text_completion', 'atext_completion', 'anthropic_messages', 'responses',
      'aresponses'
    ) THEN 'not a call of generation'
    ELSE 'no object of ours'
  END AS class,
  day,
  COUNT(*) AS calls,
  MIN(id) AS sample
FROM joined
GROUP BY class, day
"""

_ByDay = dict[date, tuple[int, str]]


def _calls(con: duckdb.DuckDBPyConnection, reading: datetime) -> tuple[dict[str, _ByDay], dict[date, int]]:
    """Classes of calls by day, and rows beyond the first of a call by day."""
    classes: dict[str, _ByDay] = {}
    for name, day, calls, sample in con.execute(_CLASSIFIED, {"reading": reading}).fetchall():
        if name != "agreed":
            classes.setdefault(name, {})[day] = (int(calls), str(sample))
    extra = con.execute(
        "SELECT day, SUM(row_count - 1), MIN(id) FROM joined WHERE row_count > 1 GROUP BY day"
    ).fetchall()
    if extra:
        classes["retries and fallbacks"] = {day: (int(n), str(sample)) for day, n, sample in extra}
    return classes, {day: int(n) for day, n, _ in extra}


def _split_missing(classes: dict[str, _ByDay], ledger: Ledger, extra_rows: dict[date, int]) -> None:
    """Tell calls that LiteLLM counted without keeping a row from those that its ledger never saw."""
    whole = next((t for t in ledger.tables if t.entity in {"Global", "User"}), None)
    missing = classes.get("unknown to LiteLLM's ledger", {})
    if whole is None:
        return
    for day, (calls, sample) in list(missing.items()):
        held = ledger.days.get(day)
        rows = (held.rows if held else 0) - extra_rows.get(day, 0)
        counted = min(calls, max(0, whole.requests.get(day, 0) - rows))
        if counted:
            classes.setdefault("counted by LiteLLM, no row", {})[day] = (counted, sample)
            missing[day] = (calls - counted, sample)
    classes["unknown to LiteLLM's ledger"] = {d: v for d, v in missing.items() if v[0]}


def _count(con: duckdb.DuckDBPyConnection, found: Reconciliation, ledger: Ledger) -> None:
    row = con.execute("SELECT COUNT(*), SUM(has_event), SUM(row_count) FROM joined").fetchone()
    found.calls, found.events, found.rows_in_lake = (int(n or 0) for n in row or (0, 0, 0))
    found.rows_in_database = sum(d.rows for d in ledger.days.values())
    found.daily = {t.name: sum(t.requests.values()) for t in ledger.tables}


def _lake_and_database(found: Reconciliation, ledger: Ledger, lake: Lake, first: date, last: date) -> None:
    with connect() as con:
        relation = lake.relation_sql("raw/spend_logs", since=first - timedelta(days=1), until=last)
        held = {
            day: int(n)
            for day, n in con.execute(
                f"SELECT CAST(start_time AS DATE) AS day, COUNT(*) FROM ({relation}) GROUP BY day"
            ).fetchall()
        }
    late = deleted = 0
    for day in {d for d in (*held, *ledger.days) if first <= d < last}:
        rows = ledger.days[day].rows if day in ledger.days else 0
        late += max(0, rows - held.get(day, 0))
        deleted += max(0, held.get(day, 0) - rows)
    _add(found, ROWS_LAKE, "late row", late)
    _add(found, ROWS_LAKE, "deleted in the database", deleted)


def _daily(
    found: Reconciliation, ledger: Ledger, table: daily_spend.DailyTable, extra_rows: dict[date, int]
) -> None:
    """Compare one daily table: a count between the rows that name its entity and all rows is in order."""
    over = under = off = 0
    days: list[str] = []
    for day in sorted({*table.requests, *ledger.days}):
        held = ledger.days.get(day, daily_spend.DayRows())
        requests = table.requests.get(day, 0)
        least = held.rows if table.entity == "Global" else held.named.get(table.entity, 0)
        # Retries that were billed are rows, but no requests of the caller.
        least = max(0, least - extra_rows.get(day, 0))
        over += max(0, requests - held.rows)
        under += max(0, least - requests)
        if requests == held.rows and _sums_differ(held.sums, table.sums.get(day, {})):
            off += 1
            days.append(day.isoformat())
    compared = f"rows and {table.name}"
    _add(found, compared, "counted without a row", over)
    _add(found, compared, "row not counted", under)
    _add(found, compared, "token or spend sums differ", off, days)


def _sums_differ(rows: dict[str, float], daily: dict[str, float]) -> bool:
    return any(
        abs(rows[name] - daily[name]) > 1e-3 * max(abs(rows[name]), abs(daily[name]))
        for name in rows.keys() & daily.keys()
    )


def _add(found: Reconciliation, compared: str, name: str, count: int, samples: Iterable[str] = ()) -> None:
    if count:
        explained, why = CLASSES[name]
        found.differences.append(
            Difference(compared, name, count, explained, why, tuple(sorted(samples))[:3])
        )


def _last_reading(lake: Lake, now: datetime) -> datetime:
    """When a call must have ended for its row to be expected in the lake."""
    told = lake.read_state("spend_logs").get("updated_at")
    return (datetime.fromisoformat(told) if told else now) - _SETTLE
