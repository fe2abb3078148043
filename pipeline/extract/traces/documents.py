"""Opens trace files and yields their records one at a time: JSON lines, one JSON text, a JSON array, or CSV.

Gzip and tar are seen by their first bytes, not by the name. Nothing but one record is ever held, so a file of
hundreds of megabytes needs no more memory than its largest record.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import orjson

from pipeline.errors import ConfigError

#: One record above this size is set aside: the largest known session has 30 MB.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
_CHUNK: Final = 1024 * 1024
_SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".gz", ".tar", ".tgz")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file: where it stands, its size in bytes, and its content."""

    place: str
    size: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that was set aside. Its keys are kept, never its content, which may hold prompts."""

    place: str
    reason: str
    size: int = 0
    keys: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The first record of a file, by which its kind is told."""

    keys: frozenset[str]
    record: dict[str, Any]


def expand(paths: list[Path]) -> list[Path]:
    """Return *paths* with every folder replaced by the trace files below it, in a stable order.

    Raises:
        ConfigError: a path does not exist, or a folder holds no trace file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.is_file() and p.name.lower().endswith(_SUFFIXES))
            if not below:
                raise ConfigError(
                    f"The folder {path} holds no trace file.", next_step=f"Looked for {', '.join(_SUFFIXES)}."
                )
            found += below
        elif path.exists():
            found.append(path)
        else:
            raise ConfigError(f"There is no file {path}.")
    return list(dict.fromkeys(found))


def digest(path: Path) -> str:
    """Return a digest of the file's content, after decompression: a repacked file is the same file.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """
    hashed = hashlib.blake2b(digest_size=16)
    with _opened(path) as (stream, _):
        while block := stream.read(_CHUNK):
            hashed.update(block)
    return hashed.hexdigest()


def head(path: Path) -> Head:
    """Return the first readable record of *path*.

    Raises:
        ConfigError: the file has none.
    """
    for item in records(path):
        if isinstance(item, Record):
            return Head(frozenset(item.value), item.value)
    raise ConfigError(
        f"{path} holds no record.", why="It is empty, or no line of it is JSON or CSV with a header."
    )


def records(
    path: Path, told: Callable[[int, int], None] = lambda done, size: None
) -> Iterator[Record | Rejected]:
    """Yield the records of *path* in order, and what could not be read as :class:`Rejected`.

    Args:
        path: the file.
        told: called now and then with the bytes of the file that were read, and its size.

    Raises:
        ConfigError: the file cannot be read or its compression is damaged.
    """
    with _opened(path) as (stream, position):
        size = path.stat().st_size
        for name, member in _members(stream):
            prefix = f"{name}: " if name else ""
            for number, item in enumerate(_parsed(member)):
                if number % 256 == 0:
                    told(position(), size)
                place = prefix + item.place
                if isinstance(item, Record):
                    yield Record(place, item.size, item.value)
                else:
                    yield Rejected(place, item.reason, item.size, item.keys)
        told(size, size)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """The decompressed stream of *path*, and how many bytes of the file itself were read."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            yield io.BufferedReader(cast(Any, stream), _CHUNK) if packed else raw, raw.tell
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ConfigError(f"{path} cannot be read.", why=str(error) or type(error).__name__) from None


def _members(stream: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    start = _peek(stream, 512)
    if start[257:262] != b"ustar":
        yield "", stream
        return
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if not member.isfile() or not member.name.lower().endswith(_SUFFIXES):
                continue
            content = archive.extractfile(member)
            if content is None:
                continue
            name = member.name.rsplit("/", 1)[-1]
            inner = cast(BinaryIO, io.BufferedReader(cast(Any, content)))
            if _peek(inner, 2)[:2] == b"\x1f\x8b":
                inner = cast(BinaryIO, io.BufferedReader(cast(Any, gzip.GzipFile(fileobj=inner))))
            yield name, inner


class _Kept(io.RawIOBase):
    """A stream that stays open when a text reader round it is thrown away."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill *buffer* as far as one read does."""
        block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def _peek(stream: BinaryIO, size: int) -> bytes:
    buffered = cast(Any, stream)
    return cast(bytes, buffered.peek(size))


def _parsed(stream: BinaryIO) -> Iterator[Record | Rejected]:
    while True:
        start = _peek(stream, _CHUNK)
        if not start:
            return
        blank = len(start) - len(start.lstrip(b"\xef\xbb\xbf \t\r\n"))
        if not blank:
            break
        stream.read(blank)
    if start[:1] == b"[":
        yield from _array(stream)
    elif start[:1] == b"{":
        yield from _lines(stream)
    else:
        yield from _table(stream)


def _lines(stream: BinaryIO) -> Iterator[Record | Rejected]:
    for number in range(1, 1 << 62):
        line = stream.readline(MAX_RECORD_BYTES)
        if not line:
            return
        if len(line) >= MAX_RECORD_BYTES and not line.endswith(b"\n"):
            while (rest := stream.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield Rejected(f"line {number}", "record too large", len(line))
            continue
        text = line.strip()
        if not text:
            continue
        if number == 1 and not text.endswith(b"}"):
            # One JSON text over several lines: a session written for people to read.
            yield from _whole(line + stream.read(MAX_RECORD_BYTES))
            return
        yield _object(f"line {number}", text)


def _whole(text: bytes) -> Iterator[Record | Rejected]:
    if len(text) >= MAX_RECORD_BYTES:
        yield Rejected("record 1", "record too large", len(text))
    else:
        yield _object("record 1", text)


def _array(stream: BinaryIO) -> Iterator[Record | Rejected]:
    """Elements of one JSON array, decoded as they arrive."""
    reader = io.TextIOWrapper(cast(Any, _Kept(stream)), encoding="utf-8", errors="replace")
    decoder = json.JSONDecoder()
    text = reader.read(_CHUNK).lstrip()[1:]
    number, wanted = 0, _CHUNK
    while True:
        text = text.lstrip(" \t\r\n,")
        if text[:1] == "]":
            return
        try:
            value, end = decoder.raw_decode(text)
            if end == len(text) and not text.endswith(("}", "]", '"')):
                raise json.JSONDecodeError("a number may go on", text, end)
        except (json.JSONDecodeError, RecursionError):
            more = reader.read(wanted)
            if more and len(text) < MAX_RECORD_BYTES:
                text += more
                wanted *= 2  # each try reads the element from its start again
                continue
            if text:
                number += 1
                yield Rejected(f"element {number}", "not JSON, or the array is cut off", len(text))
            return
        number += 1
        wanted = _CHUNK
        place = f"element {number}"
        if isinstance(value, dict):
            yield Record(place, end, value)
        else:
            yield Rejected(place, "not an object", end)
        text = text[end:]


def _object(place: str, text: bytes) -> Record | Rejected:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return Rejected(place, "not JSON", len(text))
    if not isinstance(value, dict):
        return Rejected(place, "not an object", len(text))
    return Record(place, len(text), value)


def _table(stream: BinaryIO) -> Iterator[Record | Rejected]:
    """Rows of a CSV with a header; the delimiter is the one that the header holds most of."""
    text = io.TextIOWrapper(cast(Any, _Kept(stream)), encoding="utf-8", errors="replace", newline="")
    first = text.readline(_CHUNK)
    delimiter = max(",;\t|", key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    rows = csv.reader(text, delimiter=delimiter)
    for number in range(2, 1 << 62):
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Rejected(f"row {number}", f"not CSV ({error})")
            continue
        if not row:
            continue
        if len(row) != len(header):
            yield Rejected(f"row {number}", "number of cells differs from the header", len(row))
            continue
        yield Record(f"row {number}", sum(map(len, row)), dict(zip(header, row, strict=True)))
