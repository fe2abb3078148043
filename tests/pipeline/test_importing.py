"""Imports as a whole: once, in batches, interruptible, locked, and with keyed digests of people."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import SecretStr

from gateway_plugin.hashing import Hasher
from pipeline import importing
from pipeline.errors import ConfigError, LockHeldError
from pipeline.extract.traces.staging import EventStaging
from pipeline.lake import Lake, connect
from pipeline.runlock import writer_lock
from pipeline.settings import Settings

HEADER = "started,input_tokens,user,session\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=tmp_path / "lake")


def table(folder: Path, name: str, rows: int, day: int = 1, user: str = "ann") -> Path:
    path = folder / name
    lines = [
        f"2026-03-{day:02}T08:{n // 60 % 60:02}:{n % 60:02}.{n // 3600:03},{n + 1},{user},s\n"
        for n in range(rows)
    ]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return path


def stored(settings: Settings) -> list[tuple[Any, ...]]:
    lake = Lake(settings.lake)
    with connect() as con:
        lake.view(con, "raw/events", "e")
        return con.execute("SELECT COUNT(*), COUNT(DISTINCT event_id), SUM(input_tokens) FROM e").fetchall()


def snapshot(settings: Settings) -> dict[str, tuple[int, bytes]]:
    return {
        str(p): (p.stat().st_mtime_ns, p.read_bytes())
        for p in settings.lake.rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


def test_the_same_file_twice_changes_nothing_even_repacked_and_renamed(
    settings: Settings, tmp_path: Path
) -> None:
    import gzip

    path = table(tmp_path, "calls.csv", 5)
    first = importing.import_files(settings, [path])
    before = snapshot(settings)
    other = tmp_path / "other-name.csv.gz"
    other.write_bytes(gzip.compress(path.read_bytes()))
    second = importing.import_files(settings, [path, other])
    assert [f.status for f in first.files] == ["imported"]
    assert [f.status for f in second.files] == ["already imported", "already imported"]
    assert snapshot(settings) == before
    assert stored(settings) == [(5, 5, 15)]


def test_a_file_named_twice_in_one_import_comes_in_once(settings: Settings, tmp_path: Path) -> None:
    path = table(tmp_path, "a.csv", 3)
    copy = tmp_path / "b.csv"
    copy.write_bytes(path.read_bytes())
    report = importing.import_files(settings, [path, copy])
    assert [f.status for f in report.files] == ["imported", "already imported"]
    assert stored(settings) == [(3, 3, 6)]


def test_an_import_is_still_known_after_its_files_were_compacted(settings: Settings, tmp_path: Path) -> None:
    path = table(tmp_path, "a.csv", 3)
    importing.import_files(settings, [path])
    importing.import_files(settings, [table(tmp_path, "b.csv", 4)])
    lake = Lake(settings.lake)
    with connect() as con:
        assert lake.compact(con, "raw/events", lake.dates("raw/events")[0]) == 2
    importing.import_files(settings, [path])
    assert stored(settings) == [(7, 7, 16)]


def test_many_files_become_few_and_big_ones_become_batches(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [table(tmp_path, f"{n}.csv", 3 + n) for n in range(6)]
    monkeypatch.setattr(importing, "_BATCH_ROWS", 10)
    importing.import_files(settings, files)
    assert len(Lake(settings.lake).files("raw/events")) == 3  # 3+4+5, 6+7, 8
    assert stored(settings)[0][0] == 33


def test_rows_beyond_one_chunk_all_arrive(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.extract.traces.staging._CHUNK_ROWS", 7)
    importing.import_files(settings, [table(tmp_path, "a.csv", 100)])
    assert stored(settings) == [(100, 100, 5050)]


def test_an_interrupted_file_leaves_nothing_and_finished_ones_stay(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.extract.traces.staging._CHUNK_ROWS", 7)
    first, second = table(tmp_path, "1.csv", 10), table(tmp_path, "2.csv", 1000, day=2)
    stop = Event()

    def show(text: str) -> None:
        if text.startswith("2/2") and "256 calls" in text:
            stop.set()

    report = importing.import_files(settings, [first, second], show=show, stop=stop)
    assert [f.calls for f in report.files] == [10]
    assert stored(settings) == [(10, 10, 55)]
    again = importing.import_files(settings, [first, second])
    assert [f.status for f in again.files] == ["already imported", "imported"]
    assert stored(settings)[0][:2] == (1010, 1010)


def test_a_crash_after_writing_makes_the_file_arrive_again_without_doubling(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path, "a.csv", 5)

    def crash(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "write_state", crash)
        with pytest.raises(OSError, match="no space"):
            importing.import_files(settings, [path])
    importing.import_files(settings, [path])
    assert stored(settings) == [(5, 5, 15)]
    assert not list((settings.lake / ".tmp").iterdir())


def test_a_file_that_is_in_the_lake_is_refused_under_another_reading(
    settings: Settings, tmp_path: Path
) -> None:
    path = table(tmp_path, "a.csv", 5)
    importing.import_files(settings, [path])
    for options in ({"dataset": "other"}, {"columns": {"input_tokens": "user"}}, {"kind": "azure-2023"}):
        with pytest.raises(ConfigError, match="already"):
            importing.import_files(settings, [path], **options)  # type: ignore[arg-type]
    importing.import_files(settings, [path], kind="table", columns={"user": "user"})


def test_a_file_without_one_call_is_not_remembered(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"when": 1767603600, "n": 5}\n', encoding="utf-8")
    wrong = importing.import_files(settings, [path], columns={"started": "n", "input_tokens": "n"})
    assert (wrong.files[0].calls, wrong.files[0].rejected.total()) == (0, 1)
    right = importing.import_files(settings, [path], columns={"started": "when", "input_tokens": "n"})
    assert right.files[0].calls == 1


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bdamaged", b'{"unknown": 1}', b""], ids=["damaged", "unknown", "empty"]
)
def test_a_bad_file_ends_the_import_and_the_files_before_it_stay(
    settings: Settings, tmp_path: Path, content: bytes
) -> None:
    good, bad, after = table(tmp_path, "1.csv", 3), tmp_path / "2.csv", table(tmp_path, "3.csv", 4)
    bad.write_bytes(content)
    with pytest.raises(ConfigError, match=r"2\.csv"):
        importing.import_files(settings, [good, bad, after])
    assert stored(settings) == [(3, 3, 6)]
    assert [f.status for f in importing.import_files(settings, [good, after]).files] == [
        "already imported",
        "imported",
    ]


def test_a_file_that_breaks_off_while_it_is_read_leaves_nothing(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importing.documents.records

    def broken(path: Path, *options: Any) -> Any:
        for number, record in enumerate(real(path, *options)):
            if path.name == "2.csv" and number == 9 and options:
                raise ConfigError(f"{path} cannot be read.")
            yield record

    monkeypatch.setattr("pipeline.extract.traces.staging._CHUNK_ROWS", 4)
    monkeypatch.setattr(importing.documents, "records", broken)
    files = [table(tmp_path, "1.csv", 3), table(tmp_path, "2.csv", 20)]
    with pytest.raises(ConfigError, match=r"2\.csv"):
        importing.import_files(settings, files)
    assert stored(settings) == [(3, 3, 6)]


def test_nothing_is_written_while_another_process_writes(settings: Settings, tmp_path: Path) -> None:
    path = table(tmp_path, "a.csv", 5)
    with writer_lock(settings.lake, "run"), pytest.raises(LockHeldError):
        importing.import_files(settings, [path])
    assert Lake(settings.lake).files("raw/events") == []


def test_people_are_digested_with_the_installations_secret_or_one_of_the_lake(tmp_path: Path) -> None:
    def user(settings: Settings) -> str:
        importing.import_files(settings, [table(tmp_path, "a.csv", 1)])
        with connect() as con:
            Lake(settings.lake).view(con, "raw/events", "e")
            row = con.execute("SELECT user_hash FROM e").fetchone()
        assert row is not None
        return str(row[0])

    shared = user(Settings(lake=tmp_path / "one", hash_secret=SecretStr("the secret")))
    assert shared == Hasher(b"the secret").digest("user", "ann")
    assert user(Settings(lake=tmp_path / "two")) != user(Settings(lake=tmp_path / "three"))
    assert (tmp_path / "two/state/import.key").stat().st_mode & 0o077 == 0


def test_an_unknown_kind_and_an_ambiguous_file_are_explained(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps(
            {
                "timestamp": 0,
                "input_length": 1,
                "output_length": 1,
                "hash_ids": [],
                "started": 1,
                "input_tokens": 1,
            }
        ),
        encoding="utf-8",
    )
    with pytest.raises(ConfigError, match="mooncake or table"):
        importing.import_files(settings, [path])
    with pytest.raises(ConfigError, match="no kind weko"):
        importing.import_files(settings, [path], kind="weko")
    with pytest.raises(ConfigError, match="plain tables"):
        importing.import_files(settings, [path], kind="mooncake", columns={"started": "started"})
    path.write_text('{"x": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="no kind that is known"):
        importing.import_files(settings, [path])


def test_staging_leaves_no_temporary_file_behind(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with EventStaging(lake):
        assert list((tmp_path / ".tmp").iterdir())
    assert not list((tmp_path / ".tmp").iterdir())


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", "import", *arguments],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_reports_each_file_and_the_next_step(tmp_path: Path) -> None:
    done = command(str(table(tmp_path, "a.csv", 4)), "--lake", str(tmp_path / "lake"))
    report = json.loads(done.stdout)
    assert (done.returncode, report["calls"], report["kind"]) == (0, 4, "table")
    assert "agentwatt run --offline" in done.stderr


def test_the_command_fails_where_no_record_became_a_call(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("started,input_tokens\nnever,1\n", encoding="utf-8")
    done = command(str(path), "--lake", str(tmp_path / "lake"))
    assert (done.returncode, json.loads(done.stdout)["reasons"]) == (2, {"started is no time": 1})
    assert "became a call" in done.stderr


def test_explain_needs_no_lake_and_names_every_kind(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in command("--explain").stdout.splitlines()]
    assert {"weka", "mooncake", "copilot-2026", "tracelab", "azure-2023", "table"} == set(rows[0]) - {
        "figure"
    }
    one = [json.loads(line) for line in command("--explain", "azure-2023").stdout.splitlines()]
    assert [r["figure"] for r in one] == [r["figure"] for r in rows]
    assert {r["carried"] for r in one} == {"yes", "no"}
    assert command("--explain", "weko").returncode == 2
