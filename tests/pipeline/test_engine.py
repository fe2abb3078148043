"""The engine keeps memory for a while, unless its allocator is configured from outside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import sys
from pipeline import engine
assert "duckdb" not in sys.modules
engine.connect().execute("SELECT 1")
import os
print(os.environ["DUCKDB_JE_MALLOC_CONF"])
"""


def _run(**more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "DUCKDB_JE_MALLOC_CONF"} | more
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True
    )


def test_the_allocator_keeps_memory_for_seconds() -> None:
    assert _run().stdout.strip() == "dirty_decay_ms:10000,muzzy_decay_ms:10000"


def test_an_allocator_configured_from_outside_stays_as_it_is() -> None:
    assert _run(DUCKDB_JE_MALLOC_CONF="dirty_decay_ms:500").stdout.strip() == "dirty_decay_ms:500"


@pytest.mark.skipif(sys.platform != "linux", reason="the engine has an allocator of its own on Linux alone")
def test_the_engine_reads_the_variable() -> None:
    """Should a later version rename it or use another allocator, this says so."""
    shown = _run(DUCKDB_JE_MALLOC_CONF="confirm_conf:true,dirty_decay_ms:4321").stderr
    assert "dirty_decay_ms:4321" in shown
