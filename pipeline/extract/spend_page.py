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
#: Types of the fields that a row may hold, in one pass; null where one is absent.
_SHAPE: Final = "json_type(aw, [" + ", ".join(f"'$.{name}'" for name in ROW_FIELDS) + "])"
_LIMIT_BYTES: Final = 8192
#: Identities and shapes remembered at most, about.
_KNOWN: Final = 100_000
_SAME_PERSON: Final = (
    'p.end_user IS NOT DISTINCT FROM j.end_user AND p.user_id IS NOT DISTINCT FROM j."user" '
    "AND p.api_key IS NOT DISTINCT FROM j.api_key"
)


@dataclass(frozen=True, slots=True)
class Page:
    """A loaded page: its table, its number of rows, and the key after which the next one begins.

    The key is the last row's start time and request id, or its request id alone where times are text.
    """

    table: str
    rows: int
    key: tuple[datetime, str] | str


class SpendPages:
    """Reads pages into a staging; remembers what it learnt of identities and of shapes of objects."""

    def __init__(self, con: duckdb.DuckDBPyConnection, staging: SpendStaging, reader: RowReader) -> None:
        self._con = con
        self._loading = con.cursor()  # loading a page and staging the one before happen at the same time
        self._staging = staging
        self._reader = reader
        self._loaded = self._forgot = 0
        self._shapes: dict[tuple[int, int], bool] = {}
        con.execute(
            "CREATE TEMP TABLE people "
            "(end_user VARCHAR, user_id VARCHAR, api_key VARCHAR, user_hash VARCHAR); "
            "CREATE TEMP TABLE sessions (session_id VARCHAR, safe VARCHAR)"
        )

    def load(self, stream: object) -> Page:
        """Take the rows of an Arrow stream (columns ``SOURCE_COLUMNS``) and look into their JSON.

        One thread may load while another one stages.
        """
        con = self._loading
        self._loaded += 1
        table = f"page_{self._loaded}"
        con.register("incoming", stream)
        try:
            types = {name: kind for name, kind, *_ in con.execute("DESCRIBE incoming").fetchall()}
            # An empty text means nothing.
            named = ", ".join(
                f'nullif("{name}", \'\') AS "{name}"' if types[name] == "VARCHAR" else f'"{name}"'
                for name in SOURCE_COLUMNS
            )
            con.execute(
                f"""CREATE TABLE {table} AS SELECT {named}, TRY(hash({_SHAPE})) AS shape,
                  TRY(len(json_keys(aw))) AS members,
                  TRY(json_transform(usage, '{orjson.dumps(_USAGE).decode()}')) AS u FROM incoming"""
            )
        finally:
            con.unregister("incoming")
        found = con.execute(
            f"SELECT COUNT(*), ARG_MAX(start_time, rowid), ARG_MAX(request_id, rowid) FROM {table}"
        ).fetchone()
        count, start, last = found or (0, None, None)
        return Page(table, int(count), (start, last or "") if isinstance(start, datetime) else last or "")

    def stage(self, page: Page) -> None:
        """Hash the identities of a loaded page and hand its rows to the staging."""
        con = self._con
        self._learn(page.table)
        plain = _PLAIN if self._reader.hasher else "FALSE"  # without a secret each row is counted
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE odd AS SELECT rowid AS n FROM {page.table} "
            f"WHERE ({plain}) IS NOT TRUE"
        )
        named = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in SOURCE_COLUMNS)
        odd = con.execute(
            f"SELECT {named} FROM {page.table} WHERE rowid IN (SELECT n FROM odd) ORDER BY rowid"
        ).fetchall()
        if odd:
            con.execute(f"DELETE FROM {page.table} WHERE rowid IN (SELECT n FROM odd)")
            self._staging.add([self._reader.read(row) for row in odd])
        self._identify(page.table)
        self._staging.attach(page.table, page.rows - len(odd), _PLAIN_ROWS, _IDENTIFIED)

    def _learn(self, table: str) -> None:
        """Judge the shapes of objects that this page is the first to have."""
        con = self._con
        if len(self._shapes) > _KNOWN:
            self._shapes.clear()
        present = con.execute(
            f"SELECT DISTINCT shape, members FROM {table} WHERE shape IS NOT NULL AND members IS NOT NULL"
        ).fetchall()
        if fresh := [key for key in present if key not in self._shapes]:
            kinds = con.execute(
                f"SELECT shape, members, ANY_VALUE({_SHAPE}) FROM {table} WHERE shape IN "
                "(SELECT UNNEST(?::UBIGINT[])) GROUP BY shape, members",
                [[shape for shape, _ in fresh]],
            ).fetchall()
            self._shapes |= {(shape, members): _fits(kind, members) for shape, members, kind in kinds}
        good = [key for key in present if self._shapes[key]]
        con.execute(
            "CREATE OR REPLACE TEMP TABLE good_shape AS SELECT UNNEST(?::UBIGINT[]) AS shape, "
            "UNNEST(?::BIGINT[]) AS members",
            [[shape for shape, _ in good], [members for _, members in good]],
        )

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
            ("end_user", "user_id", "api_key", "user_hash"),
            [(*key, self._digest(*key)) for key in people],
        )
        _insert(
            con,
            "sessions",
            ("session_id", "safe"),
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
#: The condition under which a row means what the engine reads in it.
_PLAIN: Final = f"""metadata_text IS NULL
  AND (aw IS NULL OR (strlen(aw) <= {_LIMIT_BYTES}
    AND (shape, members) IN (SELECT (shape, members) FROM good_shape)))
  AND (usage IS NULL OR (u.prompt_tokens IS NOT NULL AND u.input_tokens_details IS NULL))
  AND {" AND ".join(
      f"({name} IS NULL OR (strlen({name}) <= 15 AND CAST(TRY_CAST({name} AS UBIGINT) AS VARCHAR) = {name}))"
      for name in _NUMBERS
  )}
  AND COALESCE(TRY_CAST({_READ} AS BIGINT) <= TRY_CAST(u.prompt_tokens AS BIGINT), TRUE)
  AND (error_class IS NULL OR regexp_full_match(error_class, '[A-Za-z_][A-Za-z0-9_.]{{0,127}}'))
  AND (error_code IS NULL OR regexp_full_match(error_code, '[A-Za-z0-9_.\\-]{{1,64}}'))"""  # fmt: skip
_DERIVED: Final = {
    "key_hash": "j.api_key",
    "user_hash": "NULL::VARCHAR",
    "row_session_id": "NULL::VARCHAR",
    "cache_hit": "CASE lower(trim(j.cache_hit)) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' END",
    "usage_input": "u.prompt_tokens",
    "usage_cached": _READ,
    "usage_cache_write": _either(
        *(f"u.prompt_tokens_details.{name}" for name in _DETAILS[1:]),
        "u.cache_creation_input_tokens",
        "extra_written",
    ),
    "usage_output": _either("u.completion_tokens", "u.output_tokens"),
}
#: What the engine reads in the plain rows of ``arrived``; digests are joined where a row is written.
_PLAIN_ROWS: Final = (
    "SELECT "
    + ", ".join(f'{_DERIVED.get(name, f"j.{name}")} AS "{name}"' for name in TEXT_COLUMNS)
    + ', end_user, "user", session_id, api_key FROM arrived AS j'
)
_IDENTIFIED: Final = (
    f"FROM {{relation}} AS j LEFT JOIN people AS p ON {_SAME_PERSON} "
    "LEFT JOIN sessions AS s ON s.session_id = j.session_id"
)


def _fits(kinds: Sequence[str | None], members: int) -> bool:
    """Whether an object with these types of known fields holds nothing else, and our id."""
    told = {name: kind for name, kind in zip(ROW_FIELDS, kinds, strict=True) if kind is not None}
    return (
        len(told) == members
        and "event_id" in told
        and all(kind in _FITTING[_TYPES[name]] for name, kind in told.items())
    )


def _insert(
    con: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> None:
    chosen = ", ".join(f"UNNEST(CAST(${c} AS VARCHAR[])) AS {c}" for c in columns)
    con.execute(
        f"INSERT INTO {name} SELECT {chosen}", {c: [row[n] for row in rows] for n, c in enumerate(columns)}
    )
