"""One page of SpendLogs as the database sends it: plain rows are read by the engine, odd ones by hand.

:class:`pipeline.extract.spend_row.RowReader` says what a row means. Nearly all rows are plain: their JSON is
an object of the expected types, their numbers are numbers. Those the engine reads a page at a time, with the
same result; a row that is odd in any way goes to the reader. Raw identities stay in memory: only digests go
further.
"""

# ruff: noqa: S608 - columns come from closed lists; values travel as parameters

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson

from gateway_plugin.event import FIELDS, ROW_FIELDS
from pipeline.extract.arrow_stream import ArrowRows
from pipeline.extract.identity_hash import person, safe_id, user_digest
from pipeline.extract.spend_row import SOURCE_COLUMNS, TEXT_COLUMNS, RowReader
from pipeline.extract.spend_staging import SpendStaging

if TYPE_CHECKING:
    import duckdb

_DETAILS: Final = ("cached_tokens", "cache_creation_tokens", "cache_write_tokens", "created_cache_tokens")
#: What is read in a usage object, as text, so that each spelling of a number can be told; in one pass.
_USAGE: Final = {
    "prompt_tokens": "VARCHAR",
    "completion_tokens": "VARCHAR",
    "output_tokens": "VARCHAR",
    "cache_read_input_tokens": "VARCHAR",
    "cache_creation_input_tokens": "VARCHAR",
    "prompt_tokens_details": dict.fromkeys(_DETAILS, "VARCHAR"),
    "input_tokens_details": "VARCHAR",
}
_UNPACKED: Final = f"TRY(json_transform(usage, '{orjson.dumps(_USAGE).decode()}'))"
_NUMBERS: Final = (
    *(f"u.{name}" for name in _USAGE if not name.endswith("_details")),
    *(f"u.prompt_tokens_details.{name}" for name in _DETAILS),
    "extra_cached",
    "extra_written",
    "attempted_retries",
)
#: Types of an object's values, as the engine names them, that fit a field of the contract.
_FITTING: Final = {
    "str": {"VARCHAR"},
    "int": {"UBIGINT", "BIGINT"},
    "float": {"UBIGINT", "BIGINT", "DOUBLE"},
    "bool": {"BOOLEAN"},
    "steps": frozenset[str](),
}
_TYPES: Final = {f.name: f.type for f in FIELDS}
#: Names of an object's members and, in the same order, their types.
_SHAPE: Final = "json_keys(aw), json_type(aw, '$.*')"
_LIMIT_BYTES: Final = 8192
#: Identities and shapes remembered at most, about.
_KNOWN: Final = 100_000
_AS_TEXT: Final = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in SOURCE_COLUMNS)
_SAME_PERSON: Final = (
    'p.end_user IS NOT DISTINCT FROM j.end_user AND p.user_id IS NOT DISTINCT FROM j."user" '
    "AND p.api_key IS NOT DISTINCT FROM j.api_key"
)


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as they came, how many they are, and the key after which the next page begins.

    The key is the last row's start time and request id, or its request id alone where times are text.
    """

    source: ArrowRows
    rows: int
    key: tuple[datetime, str] | str

    @classmethod
    def of(cls, source: ArrowRows) -> Page:
        """Return the page of *source*, whose columns are ``SOURCE_COLUMNS``."""
        start, last = source.last("start_time"), str(source.last("request_id") or "")
        return cls(source, source.count, (start, last) if isinstance(start, datetime) else last)


class SpendPages:
    """Reads pages into a staging; remembers what it learnt of identities and of shapes of objects."""

    def __init__(self, con: duckdb.DuckDBPyConnection, staging: SpendStaging, reader: RowReader) -> None:
        self._con = con
        self._staging = staging
        self._reader = reader
        self._taken = self._forgot = 0
        self._shapes: dict[int, bool] = {}
        con.execute(
            "CREATE TEMP TABLE people "
            "(end_user VARCHAR, user_id VARCHAR, api_key VARCHAR, user_hash VARCHAR); "
            "CREATE TEMP TABLE sessions (session_id VARCHAR, safe VARCHAR)"
        )

    def stage(self, page: Page) -> None:
        """Look into the JSON of a page, hash its identities, and hand its rows to the staging."""
        con = self._con
        table = self._take(page)
        which = self._odd(table)
        odd = con.execute(f"SELECT {_AS_TEXT} FROM {table} WHERE {which} ORDER BY rowid").fetchall()
        if odd:
            con.execute(f"DELETE FROM {table} WHERE {which}")
            self._staging.add([self._reader.read(row) for row in odd])
        self._identify(table)
        self._staging.attach(table, page.rows - len(odd), _PLAIN_ROWS, _IDENTIFIED)

    def _take(self, page: Page) -> str:
        """Put the rows of a page into a table, beside what there is to know of them, in one pass."""
        self._taken += 1
        table = f"page_{self._taken}"
        # An empty text means nothing.
        named = ", ".join(
            f'nullif("{name}", \'\') AS "{name}"' if name in page.source.texts else f'"{name}"'
            for name in SOURCE_COLUMNS
        )
        plain = _PLAIN if self._reader.hasher else "FALSE"  # without a secret each row is counted
        told = f"SELECT *, TRY(hash({_SHAPE})) AS shape, {_UNPACKED} AS u FROM (SELECT {named} FROM incoming)"
        self._con.register("incoming", page.source.capsule())
        try:
            self._con.execute(
                f"CREATE TABLE {table} AS SELECT * EXCLUDE (u), {_COUNTED}, {plain} AS plain FROM ({told})"
            )
        finally:
            self._con.unregister("incoming")
            page.source.close()
        return table

    def _odd(self, table: str) -> str:
        """Return the condition of the rows that the engine cannot read; judge shapes that are new."""
        if len(self._shapes) > _KNOWN:
            self._shapes.clear()
        present = self._con.execute(
            f"SELECT shape, MIN(rowid) FROM {table} WHERE plain AND aw IS NOT NULL AND shape IS NOT NULL "
            "GROUP BY shape"
        ).fetchall()
        if fresh := {n: shape for shape, n in present if shape not in self._shapes}:
            # As text: for a list DuckDB loads pandas and pyarrow where they are.
            seen = self._con.execute(
                f"SELECT rowid, CAST(to_json([{_SHAPE}]) AS VARCHAR) FROM {table} "
                f"WHERE rowid IN ({', '.join(map(str, fresh))})"
            ).fetchall()
            self._shapes |= {fresh[n]: _fits(*orjson.loads(shape)) for n, shape in seen}
        good = [shape for shape, _ in present if self._shapes[shape]]
        return f"(plain AND (aw IS NULL OR list_contains(CAST({good} AS UBIGINT[]), shape))) IS NOT TRUE"

    def _identify(self, table: str) -> None:
        """Map the identities that are new to digests."""
        reader, con = self._reader, self._con
        self._forget()
        people = con.execute(
            f"""SELECT DISTINCT end_user, "user", api_key FROM {table} AS j
            WHERE NOT EXISTS (FROM people AS p WHERE {_SAME_PERSON})"""
        ).fetchall()
        sessions = con.execute(
            f"SELECT DISTINCT session_id FROM {table} AS j WHERE session_id IS NOT NULL "
            "AND NOT EXISTS (FROM sessions AS s WHERE s.session_id = j.session_id)"
        ).fetchall()
        _insert(
            con,
            "people",
            [(*key, self._digest(*key)) for key in people],
        )
        _insert(
            con,
            "sessions",
            [(session, safe_id(reader.hasher, session)) for (session,) in sessions],
        )

    def _forget(self) -> None:
        """Drop identities that no staged row refers to, once there are many."""
        if self._forgot == self._staging.flushes:
            return
        self._forgot = self._staging.flushes
        con, staged = self._con, self._staging.attached
        for memory, same in (("people", _SAME_PERSON), ("sessions", "p.session_id = j.session_id")):
            (known,) = con.execute(f"SELECT COUNT(*) FROM {memory}").fetchone() or (0,)
            if known > _KNOWN:
                needed = "".join(f" AND NOT EXISTS (FROM {table} AS j WHERE {same})" for table in staged)
                con.execute(f"DELETE FROM {memory} AS p WHERE TRUE{needed}")

    def _digest(self, end_user: str | None, user_id: str | None, key: str | None) -> str | None:
        reader = self._reader
        value = person({"end_user": end_user, "user_id": user_id, "key": key}, reader.precedence)
        return user_digest(reader.hasher, value) if reader.hasher and value is not None else None


def _either(*expressions: str) -> str:
    return f"COALESCE({', '.join(expressions)})"


_READ: Final = _either("u.prompt_tokens_details.cached_tokens", "u.cache_read_input_tokens", "extra_cached")
#: The condition under which a row means what the engine reads in it, if the shape of its object is good.
_PLAIN: Final = f"""metadata_text IS NULL
  AND (aw IS NULL OR strlen(aw) <= {_LIMIT_BYTES})
  AND (usage IS NULL OR (u.prompt_tokens IS NOT NULL AND u.input_tokens_details IS NULL))
  AND {" AND ".join(
      f"({name} IS NULL OR (strlen({name}) <= 15 AND CAST(TRY_CAST({name} AS UBIGINT) AS VARCHAR) = {name}))"
      for name in _NUMBERS
  )}
  AND COALESCE(TRY_CAST({_READ} AS BIGINT) <= TRY_CAST(u.prompt_tokens AS BIGINT), TRUE)
  AND (error_class IS NULL OR regexp_full_match(error_class, '[A-Za-z_][A-Za-z0-9_.]{{0,127}}'))
  AND (error_code IS NULL OR regexp_full_match(error_code, '[A-Za-z0-9_.\\-]{{1,64}}'))"""  # fmt: skip
#: What is read in the JSON of a plain row, and where; these are whole numbers there.
_COUNTED: Final = ", ".join(
    f"TRY_CAST({expression} AS BIGINT) AS {name}"
    for name, expression in {
        "usage_input": "u.prompt_tokens",
        "usage_cached": _READ,
        "usage_cache_write": _either(
            *(f"u.prompt_tokens_details.{name}" for name in _DETAILS[1:]),
            "u.cache_creation_input_tokens",
            "extra_written",
        ),
        "usage_output": _either("u.completion_tokens", "u.output_tokens"),
        "retries": "attempted_retries",
    }.items()
)
_DERIVED: Final = {
    "key_hash": "j.api_key",
    "user_hash": "NULL::VARCHAR",
    "row_session_id": "NULL::VARCHAR",
    "cache_hit": "CASE lower(trim(j.cache_hit)) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' END",
    "attempted_retries": "j.retries",
}
#: What the staging takes of the plain rows of a page; digests are joined where a row is written.
_PLAIN_ROWS: Final = (
    "SELECT "
    + ", ".join(f'{_DERIVED.get(name, f"j.{name}")} AS "{name}"' for name in TEXT_COLUMNS)
    + ', end_user, "user", session_id, api_key FROM arrived AS j'
)
_IDENTIFIED: Final = (
    f"FROM {{relation}} AS j LEFT JOIN people AS p ON {_SAME_PERSON} "
    "LEFT JOIN sessions AS s ON s.session_id = j.session_id"
)


def _fits(keys: Sequence[str] | None, kinds: Sequence[str] | None) -> bool:
    """Whether an object with these members and their types holds known fields alone, and our id."""
    if not keys or not kinds:
        return False
    return (
        len(set(keys)) == len(keys)
        and "event_id" in keys
        and all(
            key in ROW_FIELDS and kind in _FITTING[_TYPES[key]] for key, kind in zip(keys, kinds, strict=True)
        )
    )


def _insert(con: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Sequence[str | None]]) -> None:
    """Add rows of text; not as parameters, since for these DuckDB loads pandas and pyarrow where they are."""
    if rows:
        told = orjson.dumps(rows).decode().replace("'", "''")
        columns = ", ".join(f"r[{n}]" for n in range(1, len(rows[0]) + 1))
        con.execute(
            f"INSERT INTO {name} SELECT {columns} "
            f"FROM (SELECT UNNEST(from_json('{told}', '[[\"VARCHAR\"]]')) AS r)"
        )
