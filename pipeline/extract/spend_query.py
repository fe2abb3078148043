"""The SELECT over SpendLogs, built from the columns that this database has.

Bodies (``messages``, ``response``, ``proxy_server_request``) are never selected; of ``metadata`` only a few
paths are, extracted by the server, since one row's metadata alone can be 10 kB and more.
"""

# ruff: noqa: S608 - identifiers are quoted by quote(); values travel as parameters

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
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
_EARLIEST: Final = "TIMESTAMP '1900-01-01'"
#: Types of columns that travel as they are; everything else becomes text.
_NUMBERS: Final = frozenset({"smallint", "integer", "bigint", "double precision"})
#: Type of a time -> what makes it a time in UTC.
_ZONES: Final = {"timestamp without time zone": "", "timestamp with time zone": " AT TIME ZONE 'UTC'"}
_TEXT_TYPES: Final = frozenset({"text", "character varying", "character"})


def quote(identifier: str) -> str:
    """Quote an SQL identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write a text as an SQL literal, whatever ``standard_conforming_strings`` says."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'::text"


@dataclass(frozen=True, slots=True)
class SpendQuery:
    """The statements for one table layout, and what that layout lacks.

    COPY takes no parameters, so values become literals.
    """

    rows: str
    place: str
    zone: str
    missing: tuple[str, ...]
    keyed: bool
    page_rows: int

    def page(self, low: datetime, high: datetime, after: tuple[datetime, str] | str | None) -> str:
        """Return the SELECT of one page.

        Args:
            low: rows from this instant (UTC) on; not used once *after* is known.
            high: rows before this instant.
            after: key of the last row of the page before; where times are text, its request id.
        """
        if not self.keyed:  # text times have no order we could trust: the whole table by its id
            where = f" WHERE t.request_id > {literal(after)}" if isinstance(after, str) else ""
            return f"{self.rows}{where} ORDER BY t.request_id LIMIT {self.page_rows}"
        start = f"t.{quote('startTime')}"
        since = (
            f"({start}, t.request_id) > ({self._instant(after[0])}, {literal(after[1])})"
            if isinstance(after, tuple)
            else f"{start} >= {self._instant(low)}"
        )
        return (
            f"{self.rows} WHERE {since} AND {start} < {self._instant(high)} "
            f"ORDER BY {start}, t.request_id LIMIT {self.page_rows}"
        )

    def outside(self, low: datetime, high: datetime) -> str | None:
        """Return the SELECT that counts rows that start before *low* or from *high* on: none for text."""
        if not self.keyed:
            return None
        counted = f"(SELECT count(*) FROM {self.place} AS t WHERE t.{quote('startTime')}"
        return f"SELECT {counted} < {self._instant(low)}) + {counted} >= {self._instant(high)}) AS n"

    def _instant(self, value: datetime) -> str:
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'{self.zone}"


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
    kind = columns["startTime"]
    return SpendQuery(
        rows=f"SELECT {selected} FROM {_source(place, columns)}",
        place=place,
        zone=_ZONES.get(kind, ""),
        missing=missing,
        keyed=kind in _ZONES,
        page_rows=int(page_rows),
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
        return _time(name, columns)
    if name in _PLAIN:
        column = _PLAIN[name]
        if column not in columns:
            return "NULL"
        return f"t.{quote(column)}" + ("" if columns[column] in _NUMBERS else "::text")
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


def _time(name: str, columns: Mapping[str, str]) -> str:
    """A time as the instant it is; one that no calendar writes is the earliest, so it precedes its start."""
    column = f"t.{quote(_TIMES[name])}"
    kind = columns.get(_TIMES[name])
    if kind not in _ZONES:
        return f"{column}::text" if kind else "NULL"
    value = f"({column}{_ZONES[kind]})"
    if name == "start_time":  # the statement bounds it
        return value
    return (
        f"CASE WHEN {column} IS NULL OR {value} BETWEEN {_EARLIEST} AND TIMESTAMP '9999-12-31' "
        f"THEN {value} ELSE {_EARLIEST} END"
    )
