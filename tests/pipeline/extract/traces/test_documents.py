from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.extract.traces import documents
from pipeline.extract.traces.documents import Record, Rejected
from tests.pipeline.extract.traces.conftest import archive, packed


def write(folder: Path, content: bytes, name: str = "f") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def values(path: Path) -> list[object]:
    return [r.value if isinstance(r, Record) else r.reason for r in documents.records(path)]


LINES = b'{"a": 1}\n\n{"a": 2}\n'


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        b"\xef\xbb\xbf" + LINES,
        b'[{"a": 1},\n {"a": 2}]',
        packed(LINES),
        archive({"one.json": b'{\n "a": 1\n}', "folder/two.jsonl": b'{"a": 2}\n', "notes.txt": b"x"}),
        packed(archive({"one.json": b'{"a": 1}', "two.jsonl.gz": packed(b'{"a": 2}\n')})),
    ],
    ids=["lines", "byte order mark", "array", "gzip", "tar", "gzip in tar.gz"],
)
def test_every_packing_gives_the_same_records(tmp_path: Path, content: bytes) -> None:
    assert values(write(tmp_path, content)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table_gives_a_record_a_row_whatever_its_delimiter(tmp_path: Path, delimiter: str) -> None:
    text = "x, y\n1, 2\n\n3, 4, 5\n".replace(", ", delimiter)
    assert values(write(tmp_path, text.encode())) == [
        {"x": "1", "y": "2"},
        "number of cells differs from the header",
    ]


def test_bad_lines_are_set_aside_with_their_place_and_without_their_content(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a": 1}\n{"secret": \n[1]\n{"a": 2}\n')
    found = [r for r in documents.records(path) if isinstance(r, Rejected)]
    assert [(r.place, r.reason) for r in found] == [("line 2", "not JSON"), ("line 3", "not an object")]
    assert "secret" not in repr(found)


def test_an_array_that_is_cut_off_keeps_what_came_before(tmp_path: Path) -> None:
    assert values(write(tmp_path, b'[{"a": 1}, 7, {"a": 2')) == [
        {"a": 1},
        "not an object",
        "not JSON, or the array is cut off",
    ]


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=200) | st.integers()), max_size=20))
def test_arrays_are_read_as_json_reads_them_however_small_the_blocks(
    tmp_path_factory: pytest.TempPathFactory, content: list[dict[str, object]]
) -> None:
    path = write(tmp_path_factory.mktemp("array"), json.dumps(content).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "_CHUNK", 7)
        assert values(path) == content


def test_a_repacked_file_has_the_digest_of_its_content(tmp_path: Path) -> None:
    plain, zipped = write(tmp_path, LINES, "a"), write(tmp_path, packed(LINES), "b")
    assert documents.digest(plain) == documents.digest(zipped)
    assert documents.digest(plain) != documents.digest(write(tmp_path, LINES + b" ", "c"))


def test_a_record_above_the_limit_is_set_aside_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a": 1}\n{"a": "' + b"x" * 500 + b'"}\n{"a": 3}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "MAX_RECORD_BYTES", 100)
        assert values(path) == [{"a": 1}, "record too large", {"a": 3}]


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, packed(LINES * 1000))
    told: list[tuple[int, int]] = []
    list(documents.records(path, lambda done, size: told.append((done, size))))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert [d for d, _ in told] == sorted(d for d, _ in told)


@pytest.mark.parametrize("content", [b"", b"\n \n", packed(LINES)[:12]], ids=["empty", "blank", "damaged"])
def test_a_file_without_a_readable_record_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ConfigError, match=r"no record|cannot be read"):
        documents.head(path)


def test_folders_are_searched_and_absent_paths_named(tmp_path: Path) -> None:
    (tmp_path / "date=2026-06-01").mkdir()
    shard = write(tmp_path / "date=2026-06-01", LINES, "shard-0000.jsonl.gz")
    write(tmp_path, b"", "LICENSE")
    assert documents.expand([tmp_path, shard]) == [shard]
    with pytest.raises(ConfigError, match="no file"):
        documents.expand([tmp_path / "absent"])
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="no trace file"):
        documents.expand([tmp_path / "none"])
