"""The command line: exit codes, formats, errors, signals."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.lake import Lake, connect
from pipeline.runlock import writer_lock

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without settings of the machine, and a lake below the test's folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTWATT_", "COVERAGE"))}
    for name in ("REDIS_URL", "DATABASE_URL"):
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": str(ROOT), "AGENTWATT_LAKE": str(tmp_path / "lake"), "NO_COLOR": "1"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pipeline.cli", *arguments]


def call(environment: dict[str, str], tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A metrics endpoint on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'# TYPE vllm:hits counter\nvllm:hits_total{engine="0"} 5\nother 1\n'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_help_answers_at_once_and_loads_nothing_heavy(environment: dict[str, str], tmp_path: Path) -> None:
    probe = (
        "import sys, runpy; sys.argv = ['agentwatt', '--help']\n"
        "try: runpy.run_module('pipeline.cli', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'duckdb', 'pydantic', 'redis', 'asyncpg', 'httpx', 'altair', 'yaml', 'jinja2', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", probe],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"
    assert time.monotonic() - began < 5  # a loaded machine; measured alone it is a tenth of a second
    for verb in ("collect", "scrape", "run", "report", "status", "compact", "doctor", "config"):
        assert f"\n  {verb} " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nonsense"], 2, "No such command"),
        (["collect", "--nonsense"], 2, "No such option"),
        (["status", "--format", "xml"], 2, "xml"),
        (["collect"], 2, "no Redis URL"),
        (["collect", "--spool", "absent"], 2, "does not exist"),
        (["status"], 2, "no lake at"),
        (["report"], 2, "no lake at"),
        (["scrape"], 2, "nothing to scrape"),
        (["scrape", "h:1", "--match", "("], 2, "no regular expression"),
        (["scrape", "--prometheus", "http://h:1"], 2, "needs --query and --since"),
        (
            ["scrape", "--prometheus", "http://127.0.0.1:1", "--query", "up", "--since", "2026-03-29"],
            3,
            "did not answer",
        ),
        (["run", "--since", "yesterday"], 2, "--since yesterday is no day"),
        (["config", "show", "--config", "absent.yaml"], 2, "does not exist"),
    ],
)
def test_an_error_is_one_explanation_and_an_exit_code(
    environment: dict[str, str], tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    result = call(environment, tmp_path, *arguments)
    assert result.returncode == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("variable", "url", "arguments"),
    [
        ("REDIS_URL", "redis://user:hunter2@127.0.0.1:1/0", ["collect"]),
        ("REDIS_URL", "redis://user:hunter2@127.0.0.1:1/0", ["run", "--no-build"]),
        ("DATABASE_URL", "postgresql://user:hunter2@127.0.0.1:1/db", ["run", "--no-build"]),
    ],
)
def test_an_unreachable_service_exits_with_3_and_keeps_the_secret(
    environment: dict[str, str], tmp_path: Path, variable: str, url: str, arguments: list[str]
) -> None:
    result = call({**environment, variable: url}, tmp_path, *arguments)
    assert result.returncode == 3
    assert "Next: " in result.stderr
    assert "hunter2" not in result.stderr + result.stdout


def test_debug_shows_the_traceback(environment: dict[str, str], tmp_path: Path) -> None:
    result = call(environment, tmp_path, "--debug", "collect")
    assert result.returncode == 1
    assert "ConfigError" in result.stderr
    assert "Traceback" in result.stderr


def test_a_locked_lake_exits_with_3_and_names_the_holder(environment: dict[str, str], tmp_path: Path) -> None:
    with writer_lock(tmp_path / "lake", "run"):
        result = call(environment, tmp_path, "run", "--offline")
        seen = call(environment, tmp_path, "status")
    assert result.returncode == 3
    assert f"'run' (process {os.getpid()} on " in result.stderr
    assert seen.returncode == 0
    assert f"process {os.getpid()}" in seen.stderr


def test_config_show_tells_origins_in_every_format(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "agentwatt.yaml").write_text("visit_gap_s: 900\n")
    environment["REDIS_URL"] = "redis://u:hunter2@h/0"

    def shown(form: str) -> str:
        result = call(environment, tmp_path, "config", "show", "--origin", "--format", form)
        assert result.returncode == 0
        assert "hunter2" not in result.stdout
        return result.stdout

    rows = {r["key"]: r for r in json.loads(shown("json"))}
    assert rows["visit_gap_s"]["value"] == 900
    assert rows["visit_gap_s"]["origin"].endswith("agentwatt.yaml")
    assert rows["lake"]["origin"] == "env AGENTWATT_LAKE"
    assert rows["redis.url"] == {"key": "redis.url", "value": "********", "origin": "env REDIS_URL"}
    assert rows["retentions_s"]["value"] == ["inf", 3600.0, 300.0]
    lines = [json.loads(line) for line in shown("jsonl").splitlines()]
    assert lines == list(rows.values())
    table = list(csv.DictReader(io.StringIO(shown("csv"))))
    assert {r["key"] for r in table} == rows.keys()
    assert shown("markdown").startswith("| key | value | origin |\n| --- |")
    assert "visit_gap_s" in shown("table")


def test_spool_files_are_collected_and_status_tells_what_is_there(
    environment: dict[str, str], tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    record = {
        "schema": 1,
        "event_id": "e",
        "stage": "final",
        "outcome": "success",
        "started_us": 1774785000000000,
    }
    (spool / "a.jsonl").write_text(json.dumps(record) + "\nbroken\n")
    result = call(environment, tmp_path, "collect", "--spool", str(spool))
    assert result.returncode == 0
    assert json.loads(result.stdout)["rejected"] == {"not JSON": 1}
    rows = [json.loads(line) for line in call(environment, tmp_path, "status").stdout.splitlines()]
    tables = {r["name"]: r for r in rows if r["kind"] == "table"}
    assert (tables["raw/events"]["rows"], tables["raw/events"]["first_date"]) == (1, "2026-03-29")
    assert tables["rejects/events"]["rows"] == 1
    assert tables["raw/metrics"] == {**tables["raw/metrics"], "files": 0, "rows": 0, "first_date": None}


def test_doctor_passes_with_warnings_and_fails_on_what_is_unreachable(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = call(environment, tmp_path, "doctor", "--format", "json")
    states = {c["check"]: c["state"] for c in json.loads(result.stdout)}
    assert result.returncode == 0
    assert states == {
        "hash secret": "warn",
        "power": "warn",
        "lake": "ok",
        "event stream": "skip",
        "database": "skip",
    }
    result = call(
        {**environment, "REDIS_URL": "redis://127.0.0.1:1/0"}, tmp_path, "doctor", "--format", "json"
    )
    assert result.returncode == 3
    (tmp_path / "file").write_text("")
    environment["AGENTWATT_LAKE"] = str(tmp_path / "file")
    assert call(environment, tmp_path, "doctor").returncode == 2


def test_scrape_writes_until_its_time_is_over(
    environment: dict[str, str], tmp_path: Path, endpoint: str
) -> None:
    result = call(
        environment,
        tmp_path,
        "scrape",
        endpoint,
        "--interval",
        "0.1",
        "--for",
        "0.3",
        "--target-name",
        "engine",
        "--match",
        "vllm:|DCGM_",
    )
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert report["failed"] == {}
    with connect() as con:
        Lake(tmp_path / "lake").view(con, "raw/metrics", "m")
        found = con.execute("SELECT target, name, count(*) FROM m GROUP BY ALL ORDER BY ALL").fetchall()
    assert found == [("engine", "up", report["scrapes"]), ("engine", "vllm:hits_total", report["scrapes"])]


def test_scrape_exits_with_3_when_nothing_answers(environment: dict[str, str], tmp_path: Path) -> None:
    result = call(environment, tmp_path, "scrape", "127.0.0.1:1", "--for", "0", "--interval", "1")
    assert result.returncode == 3
    assert "No scrape succeeded" in result.stderr
    assert json.loads(result.stdout)["samples"] == 1  # that it was down is data


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_scraping_after_what_was_read_is_written(
    environment: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    scraped = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"a 1\n")
            scraped.set()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        process = subprocess.Popen(
            command("scrape", f"http://127.0.0.1:{server.server_port}", "--interval", "30"),
            env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert scraped.wait(30)
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        server.shutdown()
        thread.join()
    assert process.returncode == code
    assert json.loads(out)["files"] == 1
    assert len(Lake(tmp_path / "lake").files("raw/metrics")) == 1


def test_compact_merges_small_files(environment: dict[str, str], tmp_path: Path, endpoint: str) -> None:
    for _ in range(2):
        call(environment, tmp_path, "scrape", endpoint, "--for", "0")
    result = call(environment, tmp_path, "compact", "--minimum", "2")
    assert result.returncode == 0
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["table"], row["files_merged"]) == ("raw/metrics", 2)
    assert len(Lake(tmp_path / "lake").files("raw/metrics")) == 1
