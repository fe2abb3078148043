"""Rows of an Arrow stream, taken whole by one thread and read by DuckDB in another, without pyarrow.

Taking the rows only moves them: no byte is copied and DuckDB is not asked, so whoever reads from a server
does nothing else. The structures are those of the Arrow C data and C stream interfaces
(https://arrow.apache.org/docs/format/CDataInterface.html): whoever holds one calls its ``release`` once,
and moving one means copying the structure and forgetting the original.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from datetime import datetime, timedelta
from typing import Final

_NAME: Final = b"arrow_array_stream"
_EPOCH: Final = datetime(1970, 1, 1)
_TEXTS: Final = {b"u": 4, b"U": 8}  # and the bytes of an offset into them
_INSTANT: Final = b"tsu:"

#: Functions of a stream: called and given with the stream's address. Another thread may run meanwhile.
_Fill = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Tell = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Schema(ctypes.Structure):
    format: bytes
    name: bytes
    n_children: int
    children: ctypes._Pointer[ctypes._Pointer[_Schema]]
    release: int | None


class _Array(ctypes.Structure):
    length: int
    offset: int
    buffers: ctypes._Pointer[ctypes.c_void_p]
    children: ctypes._Pointer[ctypes._Pointer[_Array]]
    release: int | None


class _Stream(ctypes.Structure):
    get_schema: int
    get_next: int
    get_last_error: int
    release: int | None
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
    )


_OWNED: Final = (
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)
_Schema._fields_ = (
    *((name, ctypes.c_char_p) for name in ("format", "name", "metadata")),
    *((name, ctypes.c_int64) for name in ("flags", "n_children")),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    *_OWNED,
)
_Array._fields_ = (
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    *_OWNED,
)

_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class ArrowStreamError(Exception):
    """The source of a stream failed; the text is its own."""


class ArrowRows:
    """All rows of one stream, until :meth:`capsule` hands them on.

    ``count`` is their number, ``texts`` the names of the columns that are text.
    """

    def __init__(self, capsule: object) -> None:
        """Take every row of the stream in a ``PyCapsule``; the stream is released, whatever happens.

        Raises:
            ArrowStreamError: the source failed; nothing of it is kept.
        """
        self.count = 0
        self._arrays: deque[_Array] = deque()
        self._schema = _Schema()
        self._lent: object = None
        address = _address(capsule, _NAME)
        source = _Stream.from_address(address)
        try:
            _check(source, _Fill(source.get_schema)(address, ctypes.addressof(self._schema)))
            following = _Fill(source.get_next)
            while True:
                array = _Array()
                _check(source, following(address, ctypes.addressof(array)))
                if not array.release:
                    break
                self._arrays.append(array)
                self.count += array.length
        except ArrowStreamError:
            self.close()
            raise
        finally:
            if source.release:
                _Release(source.release)(address)
        schema = self._schema
        told = [schema.children[n].contents for n in range(schema.n_children)]
        self._columns = {column.name.decode(): (n, column.format) for n, column in enumerate(told)}
        self.texts = frozenset(name for name, (_, kind) in self._columns.items() if kind in _TEXTS)

    def __del__(self) -> None:
        """Let go of what nobody took."""
        self.close()

    def last(self, column: str) -> str | datetime | None:
        """Return the last value of *column* that is not null; None where there is none.

        Only for text and instants in microseconds without a zone, and before the rows are handed on.
        """
        place, kind = self._columns[column]
        for array in reversed(self._arrays):
            values = array.children[place].contents
            # An array's own offset counts in its columns too.
            first = array.offset + values.offset
            for n in range(first + array.length - 1, first - 1, -1):
                valid = values.buffers[0]
                if not valid or ctypes.c_uint8.from_address(valid + n // 8).value >> n % 8 & 1:
                    return _value(values, kind, n)
        return None

    def capsule(self) -> object:
        """Hand the rows on, once, as a stream that DuckDB takes; keep this object until they are read."""
        arrays, schema = self._arrays, self._schema

        def get_schema(_: int, place: int) -> int:
            ctypes.memmove(place, ctypes.addressof(schema), ctypes.sizeof(_Schema))
            _Schema.from_address(place).release = _pointer(_KEPT)
            return 0

        def get_next(_: int, place: int) -> int:
            array = arrays.popleft() if arrays else _Array()  # one without a release ends the stream
            ctypes.memmove(place, ctypes.addressof(array), ctypes.sizeof(_Array))
            return 0

        def release(place: int) -> None:
            _release(arrays)
            _Stream.from_address(place).release = None

        functions = (_Fill(get_schema), _Fill(get_next), _Tell(lambda _: None), _Release(release))
        stream = _Stream(*map(_pointer, functions))
        self._lent = (stream, functions)
        return _capsule(ctypes.addressof(stream), _NAME, None)

    def close(self) -> None:
        """Let go of the rows, and of those that were handed on what nobody took."""
        _release(self._arrays)
        if self._schema.release:
            _Release(self._schema.release)(ctypes.addressof(self._schema))


def _check(source: _Stream, code: int) -> None:
    if code:
        told = _Tell(source.get_last_error)(ctypes.addressof(source))
        raise ArrowStreamError(told.decode(errors="replace") if told else f"error {code} of the stream")


def _release(arrays: deque[_Array]) -> None:
    while arrays:
        array = arrays.popleft()
        if array.release:
            _Release(array.release)(ctypes.addressof(array))


def _value(values: _Array, kind: bytes, n: int) -> str | datetime:
    if kind == _INSTANT:
        return _EPOCH + timedelta(microseconds=ctypes.c_int64.from_address(values.buffers[1] + 8 * n).value)
    size = _TEXTS[kind]
    offsets = ctypes.string_at(values.buffers[1] + size * n, size * 2)
    first, end = (int.from_bytes(offset, sys.byteorder) for offset in (offsets[:size], offsets[size:]))
    return ctypes.string_at(values.buffers[2] + first, end - first).decode()


def _pointer(function: ctypes._FuncPointer) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _keep(place: int) -> None:
    _Schema.from_address(place).release = None


#: Release of a schema that somebody else still owns.
_KEPT: Final = _Release(_keep)
