"""Prepare this machine for the local equipment: `python -m deploy.local.prepare`.

Installs the npm packages of Prisma, generates LiteLLM's database client and compiles the environment's
modules, each only when it is missing. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from deploy.local.prisma import PrismaToolchain, ProxyInstallation, Report
from deploy.local.process import StackError

EXIT_OK = 0
EXIT_DEPENDENCY = 3
EXIT_INTERRUPTED = 130

BYTECODE_STAMP = "agentwatt-compiled"


def compile_bytecode(installation: ProxyInstallation, report: Report) -> None:
    """Compile all modules beside LiteLLM once, so that a start does not have to.

    A start without it takes about a minute of CPU longer; an environment that is not writable is left alone.
    """
    packages = installation.prisma_folder.parent
    stamp = packages / BYTECODE_STAMP
    if not os.access(packages, os.W_OK) or _compiled(packages, stamp):
        return
    report(f"compiling the modules in {packages}")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    # Some packages carry files that are no valid Python, such as templates, hence no look at the exit code.
    subprocess.run(
        [str(installation.python), "-m", "compileall", "-q", "-j", "0", str(packages)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    stamp.touch()


def _compiled(packages: Path, stamp: Path) -> bool:
    """True when nothing was installed or generated since the stamp was set."""
    try:
        stamped = stamp.stat().st_mtime
    except FileNotFoundError:
        return False
    return all(
        entry.stat().st_mtime <= stamped for entry in (packages / "prisma", *packages.glob("*.dist-info"))
    )


def prepare(python: Path, report: Report, *, bytecode: bool = True) -> None:
    """Do everything that is missing for the proxy of one Python environment."""
    installation = ProxyInstallation.of(python)
    PrismaToolchain(installation).prepare(report)
    if bytecode:
        compile_bytecode(installation, report)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.prepare", description=__doc__)
    parser.add_argument(
        "--python",
        type=Path,
        action="append",
        metavar="EXECUTABLE",
        help="Python of an environment that has LiteLLM; may be given several times (default: this one)",
    )
    parser.add_argument("--no-bytecode", action="store_true", help="do not compile modules")
    options = parser.parse_args(arguments)
    begun = time.monotonic()

    def report(step: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {step}", file=sys.stderr, flush=True)

    try:
        for python in options.python or [Path(sys.executable)]:
            prepare(python, report, bytecode=not options.no_bytecode)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_DEPENDENCY
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    report("ready")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
