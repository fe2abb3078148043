"""Prisma for the LiteLLM proxy on a machine that reaches only package registries.

LiteLLM talks to its database through Prisma's Python client, which starts a native engine that is normally
downloaded from Prisma's own servers. Here the npm packages bring the command line and the WASM build of the
same engine, `node/query-engine.js` makes it look like the native one, and small scripts stand where the
downloads would. A native engine that the machine already has is used instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from deploy.local.nodejs import Node, find_node, install_packages
from deploy.local.process import StackError, run_checked

PRISMA_VERSION = "5.17.0"
ENGINE_COMMIT = "393aa359c9ad4a4bb28630fb5613f9c281cde053"  # of 5.17.0
# What the Python client 0.11 downloads by itself, hence what a native engine in its cache is.
CLIENT_DEFAULT_COMMIT = "ac9d7041ed77bcc8a8dbd2ab6616b39013829574"
CLIENT_RELEASE = "0.11.0"

NODE_SOURCES = Path(__file__).with_name("node")
STAMP = "agentwatt-generated.json"

Report = Callable[[str], None]

_PROBE = """
import importlib.metadata, importlib.util, json
def folder(name):
    spec = importlib.util.find_spec(name)
    return spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else None
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({
    "prisma": folder("prisma"), "extras": folder("litellm_proxy_extras"),
    "prisma_version": version("prisma"), "litellm_version": version("litellm"),
}))
"""


@dataclass(frozen=True)
class ProxyInstallation:
    """The LiteLLM proxy of one Python environment, which need not be the one that runs this program."""

    python: Path
    litellm_version: str
    prisma_folder: Path
    extras_folder: Path

    @classmethod
    def of(cls, python: Path | None = None) -> Self:
        """Ask a Python executable where its packages are, without importing them.

        Raises:
            StackError: the proxy or the right Prisma client is missing; says what to install.
        """
        # Absolute, for the client is generated elsewhere; not resolved, for the link names the environment.
        executable = (python or Path(sys.executable)).absolute()
        answer = run_checked(
            "looking for LiteLLM",
            [str(executable), "-c", _PROBE],
            advice=f"Is {executable} a Python of version 3.11 or newer?",
            timeout_s=60,
        )
        found = json.loads(answer.splitlines()[-1])
        install = f"{executable} -m pip install 'litellm[proxy]' prisma=={CLIENT_RELEASE}"
        if not (found["litellm_version"] and found["extras"] and found["prisma"]):
            raise StackError(f"{executable} has no complete LiteLLM proxy. Install it: {install}")
        if found["prisma_version"] != CLIENT_RELEASE:
            # LiteLLM assigns an attribute of the client that later releases renamed.
            raise StackError(
                f"{executable} has prisma {found['prisma_version']}. Install the right one: {install}"
            )
        return cls(executable, found["litellm_version"], Path(found["prisma"]), Path(found["extras"]))

    @property
    def schema(self) -> Path:
        """LiteLLM's Prisma schema."""
        return self.extras_folder / "schema.prisma"

    @property
    def migrations(self) -> Path:
        """LiteLLM's migrations, one folder each."""
        return self.extras_folder / "migrations"


class PrismaToolchain:
    """npm packages, engine scripts and the generated client for one proxy installation."""

    def __init__(self, installation: ProxyInstallation, *, cache: Path | None = None) -> None:
        """`cache` holds what is installed once; default: the virtual environment, else the user's cache."""
        self.installation = installation
        self.cache = (cache or default_cache()).resolve()
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The Node.js in use, looked up once."""
        if self._node is None:
            self._node = find_node()
        return self._node

    @property
    def packages(self) -> Path:
        """Folder of the npm packages; another lock file means another folder."""
        return self.cache / f"node-{_digest((NODE_SOURCES / 'package-lock.json').read_bytes())}"

    @property
    def _cli(self) -> Path:
        """Prisma's command line, a Node.js program."""
        return self.packages / "node_modules" / "prisma" / "build" / "index.js"

    @property
    def scripts(self) -> Path:
        """Folder of the engine scripts, which carry the paths of Node.js and of our program."""
        identity = f"{self.node.program}\n{NODE_SOURCES}\n{self.packages}\n{_engine_script(self)}"
        return self.cache / f"scripts-{_digest(identity.encode())}"

    def prepare(self, report: Report = lambda _: None) -> Self:
        """Make engine and client ready, each only when something is missing.

        Safe to call from several programs at once.

        Raises:
            StackError: names the step that failed and what to do.
        """
        self.prepare_engine(report)
        with self._lock():
            if not self._generated():
                report(f"generating the database client of LiteLLM {self.installation.litellm_version}")
                self._generate()
        return self

    def prepare_engine(self, report: Report = lambda _: None) -> Self:
        """Install the npm packages and write the engine scripts; the client is left alone.

        Raises:
            StackError: npm failed, or there is no Node.js.
        """
        with self._lock():
            if not (self.packages / "node_modules").exists():
                report(f"installing the npm packages of Prisma {PRISMA_VERSION} ({self.node.origin} Node.js)")
                install_packages(self.node, NODE_SOURCES, self.packages)
            self._write_scripts()
        return self

    def environment(self) -> dict[str, str]:
        """Variables for every program that uses the client: the proxy above all."""
        native = native_engine()
        engine = native or self.scripts / "query-engine"
        folders = [self.scripts, self.installation.python.parent, self.node.folder]
        path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
        return {
            "PATH": path,
            "PRISMA_VERSION": PRISMA_VERSION,
            "PRISMA_EXPECTED_ENGINE_VERSION": ENGINE_COMMIT,
            "PRISMA_BINARY_CACHE_DIR": str(self.packages),
            "PRISMA_QUERY_ENGINE_BINARY": str(engine),
            # The command line only asks these for their version, when it generates the client.
            "PRISMA_QUERY_ENGINE_LIBRARY": str(self.scripts / "version-only"),
            "PRISMA_SCHEMA_ENGINE_BINARY": str(self.scripts / "version-only"),
            "PRISMA_CLI_QUERY_ENGINE_TYPE": "binary",
            "PRISMA_HIDE_UPDATE_MESSAGE": "true",
            "CHECKPOINT_DISABLE": "1",  # no call home by the command line
        }

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one program at a time install or generate."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "prepare.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write_scripts(self) -> None:
        self.scripts.mkdir(exist_ok=True)
        _write_script(self.scripts / "query-engine", _engine_script(self))
        _write_script(self.scripts / "version-only", f"echo 'query-engine {ENGINE_COMMIT}'")
        # LiteLLM calls the command line at every start; the Python client's own wrapper of it takes seconds
        # to import the generated client first.
        _write_script(
            self.scripts / "prisma", f'exec {shlex.join([str(self.node.program), str(self._cli)])} "$@"'
        )

    def _stamp(self) -> dict[str, str]:
        return {"schema": _digest(self.installation.schema.read_bytes()), "prisma": PRISMA_VERSION}

    def _generated(self) -> bool:
        folder = self.installation.prisma_folder
        try:
            stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return stamp == self._stamp() and (folder / "client.py").exists()

    def _generate(self) -> None:
        stamp = self.installation.prisma_folder / STAMP
        if not os.access(self.installation.prisma_folder, os.W_OK):
            raise StackError(
                f"the database client has to be generated into {self.installation.prisma_folder}, which is "
                "not writable. Run `python -m deploy.local.prepare` once as the owner of that environment."
            )
        stamp.unlink(missing_ok=True)
        run_checked(
            "generating the Prisma client",
            [str(self.node.program), str(self._cli), "generate", f"--schema={self.installation.schema}"],
            cwd=self.packages,  # no pyproject.toml or .env of anybody else
            env={**os.environ, **self.environment()},
            advice="Remove the folder of the npm packages and try again: " + str(self.packages),
        )
        stamp.write_text(json.dumps(self._stamp()), encoding="utf-8")


def default_cache() -> Path:
    """`AGENTWATT_CACHE`, else the virtual environment, else the user's cache, else a temporary folder."""
    if chosen := os.environ.get("AGENTWATT_CACHE"):
        return Path(chosen)
    prefix = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and os.access(prefix, os.W_OK):
        return prefix / "share" / "agentwatt"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    existing = next((folder for folder in (home, *home.parents) if folder.exists()), None)
    if existing is not None and os.access(existing, os.W_OK):
        return home / "agentwatt"
    return _private_folder(Path(tempfile.gettempdir()) / f"agentwatt-cache-{os.getuid()}")


def _private_folder(path: Path) -> Path:
    """Create a folder in a place that everybody can write to, or make sure that it is ours."""
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise StackError(f"{path} belongs to somebody else. Set AGENTWATT_CACHE to a folder of yours.")
    return path


def native_engine() -> Path | None:
    """A native query engine: `PRISMA_QUERY_ENGINE_BINARY`, else one in the Python client's download cache.

    Raises:
        StackError: the variable names a file that is not there.
    """
    if named := os.environ.get("PRISMA_QUERY_ENGINE_BINARY"):
        if not Path(named).exists():
            raise StackError(f"PRISMA_QUERY_ENGINE_BINARY names {named}, which does not exist. Unset it.")
        return Path(named)
    downloads = Path.home() / ".cache" / "prisma-python" / "binaries"
    for commit in (CLIENT_DEFAULT_COMMIT, ENGINE_COMMIT):
        for found in sorted(downloads.glob(f"*/{commit}/**/*query-engine-*")):
            if (
                found.is_file()
                and os.access(found, os.X_OK)
                and not found.name.endswith((".node", ".gz", ".sha256"))
            ):
                return found
    return None


def _engine_script(toolchain: PrismaToolchain) -> str:
    modules = shlex.quote(str(toolchain.packages / "node_modules"))
    program = shlex.quote(str(NODE_SOURCES / "query-engine.js"))
    return f'NODE_PATH={modules} exec {shlex.quote(str(toolchain.node.program))} {program} "$@"'


def _write_script(path: Path, command: str) -> None:
    text = f"#!/bin/sh\n{command}\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
