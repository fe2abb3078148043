"""The command line: ports, signals, exit codes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.local.engine.config import EngineConfig
from tests.deploy.local.engine.conftest import ENDLESS, request

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "deploy.local.engine"]


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the engine; give the process and its URL."""
    with subprocess.Popen(
        [*COMMAND, "--port", "0", "--speed-up", "100", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            yield process, f"http://127.0.0.1:{json.loads(line)['port']}"
        finally:
            process.kill()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly_even_while_a_stream_runs(number: signal.Signals, code: int) -> None:
    with started("--model", "mine") as (process, url):
        assert [m["id"] for m in get(url + "/v1/models")["data"]] == ["mine"]
        body = json.dumps(request("chat", ENDLESS, stream=True)).encode()
        with urllib.request.urlopen(url + "/v1/chat/completions", data=body, timeout=20) as stream:
            assert stream.readline().startswith(b"data: ")
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
        assert (process.returncode, out, err) == (code, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed-up", "0"], "must be positive"),
        (["--boards", "0"], "at least 1"),
        (["--capacity-blocks", "10"], "raise --capacity-blocks or lower --max-model-len"),
        (["--tokenizer", "/nowhere/tokenizer.json"], "/nowhere/tokenizer.json"),
        (["--port", "many"], "invalid int value"),
    ],
)
def test_unusable_arguments_are_named(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_an_unreachable_dependency() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot listen" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_names_every_option_and_route() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (
        "--no-prompt-tokens-details",
        "--block-size",
        "/v1/messages",
        "/ground-truth",
        "default: 32",
    ):
        assert word in done.stdout


def test_it_starts_without_importing_litellm() -> None:
    code = (
        "import sys; from deploy.local.engine import __main__, tokenizer\n"
        "tokenizer.CachingTokenizer(tokenizer.find_tokenizer_file())\n"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    "wrong", [{"block_size": 0}, {"max_running": 0}, {"max_model_len": -1}, {"capacity_blocks": 4095}]
)
def test_sizes_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|the cache holds"):
        EngineConfig(**wrong)  # type: ignore[arg-type]
