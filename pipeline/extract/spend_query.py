"""The SELECT over SpendLogs, built from the columns that this database has.

Bodies (``messages``, ``response``, ``proxy_server_request``) are never selected; of ``metadata`` only a few
paths are, extracted by the server, since one row's metadata alone can be 10 kB and more.
"""

# ruff: noqa: S608 - identifiers are quoted by quote(); values travel as parameters

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipeline.errors import ConfigError
from pipeline.extract.spend_row import SOURCE_COLUMNS

#: A metadata text above this length is cut (and then unreadable, and counted).
_METADATA_LIMIT: Final = 1_048_576

#: Source column -> column of the table; without it the value is null.
_PLAIN: Final = {
    "request_id": "request_id", "call_type": "call_type", "api_key": "api_key", "spend": "spend",
    "prompt_tokens": "prompt_tokens", "completion_tokens": "completion_tokens",
    "total_tokens": "total_tokens", "model": "model", "model_id": "model_id", "model_group": "model_group",
    "provider": "custom_llm_provider", "end_user": "end_user", "user": "user", "team_id": "team_id",
    "session_id": "session_id", "cache_hit": "cache_hit",
}  # fmt: skip
_TIMES: Final = {
    "start_time": "startTime",
    "end_time": "endTime",
    "completion_start_time": "completionStartTime",
}
#: Source column -> path into metadata.
_PATHS: Final = {
    "attempted_retries": "{attempted_retries}",
    "error_class": "{error_information,error_class}",
    "error_code": "{error_information,error_code}",
    "extra_cached": "{additional_usage_values,cache_read_input_tokens}",
    "extra_written": "{additional_usage_values,cache_creation_input_tokens}",
    "usage": "{usage_object}",
}
_REQUIRED: Final = ("request_id", "startTime")
_TEXT_TYPES: Final = frozenset({"text", "character varying", "character"})


def quote(identifier: str) -> str:
    """Quote an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class SpendQuery:
    """Statements for one table layout, and what that layout lacks."""

    page: str
    first_page: str
    bounds: str | None
    missing: tuple[str, ...]
    keyed: bool


def build(schema: str, table: str, columns: Mapping[str, str], page_rows: int) -> SpendQuery:
    """Build the statements for a table with *columns* (name -> ``information_schema`` type).

    Raises:
        ConfigError: the table is absent, or lacks its key columns.
    """
    place = f"{quote(schema)}.{quote(table)}"
    absent = [name for name in _REQUIRED if name not in columns]
    if absent:
        raise ConfigError(
            f"The table {place} cannot be read.",
            why=f"It has no column {', '.join(absent)}." if columns else "It is absent or not granted.",
            next_step="Check database.url, database.db_schema and database.table: agentwatt doctor.",
        )
    wanted = {*_PLAIN.values(), *_TIMES.values(), "metadata", "status"}
    missing = tuple(sorted(wanted - columns.keys()))
    selected = ", ".join(f"{_expression(name, columns)} AS {quote(name)}" for name in SOURCE_COLUMNS)
    start = f"t.{quote('startTime')}"
    source = _source(place, columns)
    keyed = columns["startTime"] not in _TEXT_TYPES
    if not keyed:
        # Text times have no order we could trust: read the whole table by its id.
        where, order = "t.request_id > $1", "t.request_id"
        limit = f" ORDER BY {order} LIMIT {int(page_rows)}"
        return SpendQuery(
            page=f"SELECT {selected} FROM {source} WHERE {where}{limit}",
            first_page=f"SELECT {selected} FROM {source}{limit}",
            bounds=None,
            missing=missing,
            keyed=False,
        )
    zone = " AT TIME ZONE 'UTC'" if columns["startTime"] == "timestamp with time zone" else ""
    low, high = f"$1::timestamp{zone}", f"$2::timestamp{zone}"
    limit = f" ORDER BY {start}, t.request_id LIMIT {int(page_rows)}"
    return SpendQuery(
        page=f"SELECT {selected} FROM {source} "
        f"WHERE ({start}, t.request_id) > ({low}, $3::text) AND {start} < {high}{limit}",
        first_page=f"SELECT {selected} FROM {source} WHERE {start} >= {low} AND {start} < {high}{limit}",
        bounds=f"SELECT count(*) FROM {place} AS t WHERE {start} < {low} OR {start} >= {high}",
        missing=missing,
        keyed=True,
    )


def _source(place: str, columns: Mapping[str, str]) -> str:
    """The table beside its metadata unpacked once: each operator of its own would unpack a large value again.

    Joining an empty object to a ``jsonb`` object gives the same object, unpacked; anything else becomes an
    array, in which no path is found. OFFSET 0 keeps the planner from putting the expression back in place of
    its name.
    """
    kind = columns.get("metadata")
    if kind not in {"json", "jsonb"}:
        return f"{place} AS t"
    value = (
        "t.metadata || '{}'::jsonb"
        if kind == "jsonb"
        else "CASE json_typeof(t.metadata) WHEN 'object' THEN t.metadata END"
    )
    return f"{place} AS t CROSS JOIN LATERAL (SELECT {value} AS value OFFSET 0) AS m"


def _expression(name: str, columns: Mapping[str, str]) -> str:
    if name in _TIMES:
        column = _TIMES[name]
        if column not in columns:
            return "NULL"
        zone = " AT TIME ZONE 'UTC'" if columns[column] == "timestamp with time zone" else ""
        return f"(t.{quote(column)}{zone})::text"
    if name in _PLAIN:
        column = _PLAIN[name]
        return f"t.{quote(column)}::text" if column in columns else "NULL"
    json_type = columns.get("metadata")
    if json_type in _TEXT_TYPES:
        if name == "metadata_text":
            return f"left(t.metadata, {_METADATA_LIMIT})"
        if name in {"litellm_call_id", "status"} and name in columns:
            return f"t.{quote(name)}::text"
        return "NULL"
    if json_type not in {"json", "jsonb"}:
        return f"t.{quote(name)}::text" if name in columns else "NULL"
    if name == "metadata_text":  # a string that holds JSON: looked into by the reader
        text = f"left(t.metadata #>> '{{}}', {_METADATA_LIMIT})"
        # A look at the unpacked value spares objects another unpacking.
        return (
            f"CASE WHEN coalesce({json_type}_typeof(m.value), 'array') = 'array' "
            f"AND {json_type}_typeof(t.metadata) = 'string' THEN {text} END"
        )
    if name == "aw":
        inner = "m.value -> 'spend_logs_metadata'"
        return (
            "coalesce(m.value #>> '{spend_logs_metadata,agentwatt}', "
            f"CASE {json_type}_typeof({inner}) WHEN 'string' "
            f"THEN left(m.value ->> 'spend_logs_metadata', {_METADATA_LIMIT}) END)"
        )
    if name in {"litellm_call_id", "status"}:
        member = f"m.value ->> '{name}'"
        return f"coalesce(nullif(t.{quote(name)}::text, ''), {member})" if name in columns else member
    return f"m.value #>> '{_PATHS[name]}'"
