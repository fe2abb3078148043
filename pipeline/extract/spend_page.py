"""One page of SpendLogs as the database sends it: plain rows are read by the engine, odd ones by hand.

:class:`pipeline.extract.spend_row.RowReader` says what a row means. Nearly all rows are plain: their JSON is
an object of the expected types, their numbers are numbers. Those the engine reads a page at a time, with the
same result; a row that is odd in any way goes to the reader. Raw identities stay in memory: the page is an
anonymous file where the system has those, and only digests go further.
"""

# ruff: noqa: S608 - columns come from closed lists; values travel as parameters

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Final

from gateway_plugin.event import FIELDS, ROW_FIELDS
from pipeline.extract.identity_hash import person, safe_id, user_digest
from pipeline.extract.spend_row import SOURCE_COLUMNS, TEXT_COLUMNS, RowReader
from pipeline.extract.spend_staging import SpendStaging

if TYPE_CHECKING:
    import duckdb

#: Paths into the usage object; the engine looks them all up in one pass.
_USAGE: Final = (
    "$.prompt_tokens",
    "$.completion_tokens",
    "$.output_tokens",
    "$.prompt_tokens_details",
    "$.prompt_tokens_details.cached_tokens",
    "$.prompt_tokens_details.cache_creation_tokens",
    "$.prompt_tokens_details.cache_write_tokens",
    "$.prompt_tokens_details.created_cache_tokens",
    "$.cache_read_input_tokens",
    "$.cache_creation_input_tokens",
    "$.input_tokens_details",
)
_NUMBERS: Final = (0, 1, 2, 4, 5, 6, 7, 8, 9)
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
_INTEGER: Final = "(0|[1-9][0-9]{0,14})"
_LIMIT_BYTES: Final = 8192


def buffer() -> IO[bytes]:
    """Return an empty file for one page; where the system can, it has no name and lies in memory."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("page"), "w+b")
    return tempfile.TemporaryFile()  # the caller closes it


class SpendPages:
    """Reads pages into a staging; remembers what it learnt of identities and of shapes of objects."""

    def __init__(self, con: duckdb.DuckDBPyConnection, staging: SpendStaging, reader: RowReader) -> None:
        self._con = con
        self._staging = staging
        self._reader = reader
        self._shapes: dict[tuple[int, int], bool] = {}
        self._people: dict[tuple[str | None, str | None, str | None], str | None] = {}
        self._sessions: dict[str, str | None] = {}
        self._rows: list[list[str]] | None = None

    def load(self, page: IO[bytes]) -> tuple[int, list[str]]:
        """Take one page of CSV; return its number of rows and its last row's start time and request id."""
        import duckdb

        page.flush()
        self._rows = None
        try:
            self._read(page)
            found = self._con.execute(
                "SELECT COUNT(*), ARG_MAX(start_time, rowid), ARG_MAX(request_id, rowid) FROM source"
            ).fetchone()
        except duckdb.Error:  # bytes that are no text, or a line beyond every limit: by hand
            page.seek(0)
            text = page.read().decode("utf-8", "replace")
            self._rows = list(csv.reader(io.StringIO(text, newline="")))
            last = self._rows[-1] if self._rows else []
            keys = [last[SOURCE_COLUMNS.index(n)] for n in ("start_time", "request_id")] if last else []
            return len(self._rows), keys
        count, *keys = found or (0,)
        return int(count), [str(k or "") for k in keys]

    def stage(self) -> None:
        """Hash the identities of the loaded page and hand its rows to the staging."""
        if self._rows is not None:
            self._staging.add([self._reader.read(row) for row in self._rows])
            return
        con = self._con
        self._look()
        plain = self._plain() if self._reader.hasher else "FALSE"  # without a secret each row is counted
        con.execute(f"CREATE OR REPLACE TEMP TABLE odd AS SELECT n FROM seen WHERE ({plain}) IS NOT TRUE")
        named = ", ".join(f'"{name}"' for name in SOURCE_COLUMNS)
        odd = con.execute(f"SELECT {named} FROM seen WHERE n IN (SELECT n FROM odd) ORDER BY n").fetchall()
        rest = " WHERE n NOT IN (SELECT n FROM odd)" if odd else ""
        con.execute(f"CREATE OR REPLACE TEMP VIEW plain AS SELECT * FROM seen{rest}")
        self._identify()
        con.execute(f"CREATE OR REPLACE TEMP TABLE page AS {_PLAIN_ROWS}")
        self._staging.insert()
        if odd:
            self._staging.add([self._reader.read(row) for row in odd])

    def _read(self, page: IO[bytes]) -> None:
        listed = ", ".join(f"'{name}': 'VARCHAR'" for name in SOURCE_COLUMNS)
        self._con.execute(
            f"""CREATE OR REPLACE TEMP TABLE source AS SELECT * FROM read_csv(?, header = false,
            auto_detect = false, columns = {{{listed}}}, delim = ',', quote = '"', escape = '"', nullstr = '',
            new_line = '\\n', parallel = false, max_line_size = 4000000)""",
            [f"/dev/fd/{page.fileno()}"],
        )

    def _look(self) -> None:
        paths = ", ".join(f"'{p}'" for p in _USAGE)
        self._con.execute(
            f"""CREATE OR REPLACE TEMP TABLE derived AS SELECT
              CASE WHEN json_valid(aw) THEN hash({_SHAPE}) END AS shape,
              CASE WHEN json_valid(aw) THEN len(json_keys(aw)) END AS members,
              CASE WHEN json_valid(usage) THEN json_type(usage, [{paths}]) END AS kinds,
              CASE WHEN json_valid(usage) THEN json_extract_string(usage, [{paths}]) END AS found
            FROM source"""
        )
        self._con.execute(
            "CREATE OR REPLACE TEMP VIEW seen AS "
            "SELECT source.*, derived.*, source.rowid AS n FROM source POSITIONAL JOIN derived"
        )

    def _plain(self) -> str:
        """Return the condition under which a row means what the engine reads in it."""
        present = self._con.execute(
            "SELECT DISTINCT shape, members FROM derived WHERE shape IS NOT NULL AND members IS NOT NULL"
        ).fetchall()
        if fresh := [key for key in present if key not in self._shapes]:
            kinds = self._con.execute(
                f"SELECT shape, members, ANY_VALUE({_SHAPE}) FROM seen WHERE shape IN "
                "(SELECT UNNEST(?::UBIGINT[])) GROUP BY shape, members",
                [[shape for shape, _ in fresh]],
            ).fetchall()
            self._shapes |= {(shape, members): _fits(kind, members) for shape, members, kind in kinds}
        good = [key for key, fits in self._shapes.items() if fits]
        self._con.execute(
            "CREATE OR REPLACE TEMP TABLE good_shape AS SELECT UNNEST(?::UBIGINT[]) AS shape, "
            "UNNEST(?::BIGINT[]) AS members",
            [[shape for shape, _ in good], [members for _, members in good]],
        )
        numbers = " AND ".join(
            f"(kinds[{n + 1}] IS NULL OR kinds[{n + 1}] = 'NULL' OR (kinds[{n + 1}] = 'UBIGINT' "
            f"AND length(found[{n + 1}]) <= 15))"
            for n in _NUMBERS
        )
        texts = " AND ".join(
            f"({name} IS NULL OR regexp_full_match({name}, '{pattern}'))"
            for name, pattern in (
                ("extra_cached", _INTEGER),
                ("extra_written", _INTEGER),
                ("attempted_retries", _INTEGER),
                ("error_class", "[A-Za-z_][A-Za-z0-9_.]{0,127}"),
                ("error_code", r"[A-Za-z0-9_.\-]{1,64}"),
            )
        )
        return f"""metadata_text IS NULL
          AND (aw IS NULL OR (strlen(aw) <= {_LIMIT_BYTES}
            AND (shape, members) IN (SELECT (shape, members) FROM good_shape)))
          AND (usage IS NULL OR (kinds[1] = 'UBIGINT' AND {numbers}
            AND (kinds[4] IS NULL OR kinds[4] IN ('OBJECT', 'NULL'))
            AND (kinds[11] IS NULL OR kinds[11] = 'NULL')
            AND COALESCE({_READ} <= CAST({_at(0)} AS BIGINT), TRUE)))
          AND {texts}"""

    def _identify(self) -> None:
        """Map the page's distinct identities to digests."""
        reader, con = self._reader, self._con
        people = con.execute('SELECT DISTINCT end_user, "user", api_key FROM plain').fetchall()
        sessions = con.execute(
            "SELECT DISTINCT session_id FROM plain WHERE session_id IS NOT NULL"
        ).fetchall()
        self._trim()
        for key in people:
            if key not in self._people:
                values = dict(zip(("end_user", "user_id", "key"), key, strict=True))
                value = person(values, reader.precedence)
                told = reader.hasher is not None and value is not None
                self._people[key] = user_digest(reader.hasher, value) if told else None  # type: ignore[arg-type]
        for (session,) in sessions:
            if session not in self._sessions:
                self._sessions[session] = safe_id(reader.hasher, session)
        _table(
            con,
            "people",
            ("end_user", "user_id", "api_key", "user_hash"),
            [(*key, self._people[key]) for key in people],
        )
        _table(con, "sessions", ("session_id", "safe"), [(s, self._sessions[s]) for (s,) in sessions])

    def _trim(self) -> None:
        for memory in (self._people, self._sessions, self._shapes):
            if len(memory) > 100_000:
                memory.clear()


def _at(number: int) -> str:
    return f"CASE WHEN kinds[{number + 1}] = 'UBIGINT' THEN found[{number + 1}] END"


def _either(*expressions: str) -> str:
    return f"COALESCE({', '.join(expressions)})"


_READ: Final = f"CAST({_either(_at(4), _at(8), 'extra_cached')} AS BIGINT)"
_DERIVED: Final = {
    "key_hash": "j.api_key",
    "user_hash": "p.user_hash",
    "row_session_id": "s.safe",
    "cache_hit": "CASE lower(trim(j.cache_hit)) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' END",
    "usage_input": _at(0),
    "usage_cached": _either(_at(4), _at(8), "extra_cached"),
    "usage_cache_write": _either(_at(5), _at(6), _at(7), _at(9), "extra_written"),
    "usage_output": _either(_at(1), _at(2)),
    "aw": "CAST(json(j.aw) AS VARCHAR)",
}
_PLAIN_ROWS: Final = (
    "SELECT "
    + ", ".join(f'{_DERIVED.get(name, f"j.{name}")} AS "{name}"' for name in TEXT_COLUMNS)
    + """ FROM plain AS j
    LEFT JOIN people AS p ON p.end_user IS NOT DISTINCT FROM j.end_user
      AND p.user_id IS NOT DISTINCT FROM j."user" AND p.api_key IS NOT DISTINCT FROM j.api_key
    LEFT JOIN sessions AS s ON s.session_id = j.session_id"""
)


def _fits(kinds: Sequence[str | None], members: int) -> bool:
    """Whether an object with these types of known fields holds nothing else, and our id."""
    told = {name: kind for name, kind in zip(ROW_FIELDS, kinds, strict=True) if kind is not None}
    return (
        len(told) == members
        and "event_id" in told
        and all(kind in _FITTING[_TYPES[name]] for name, kind in told.items())
    )


def _table(
    con: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> None:
    chosen = ", ".join(f"UNNEST(CAST(${c} AS VARCHAR[])) AS {c}" for c in columns)
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT {chosen}",
        {c: [row[n] for row in rows] for n, c in enumerate(columns)},
    )


def key_of(keys: Sequence[str], *, keyed: bool) -> tuple[datetime, str] | str:
    """Return the key after which the next page begins."""
    return (datetime.fromisoformat(keys[0]), keys[1]) if keyed else keys[1]
