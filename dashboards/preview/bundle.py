"""Grafana's libraries from npm, and the page built from them; made once and kept beside the environment."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.nodejs import Node, find_node, install_packages
from deploy.local.prisma import default_cache
from deploy.local.process import run_checked

SOURCES: Final = Path(__file__).resolve().parent
PAGE: Final = SOURCES / "page"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the server serves: script and styles of the page, Grafana's icons and its font."""

    script: Path
    styles: Path
    images: Path
    fonts: Path


def bundle(report: Report = lambda _: None, *, cache: Path | None = None, node: Node | None = None) -> Bundle:
    """Return the built page; packages and page are made only when their sources changed.

    Raises:
        StackError: there is no Node.js, the registry cannot be reached, or the page cannot be built.
    """
    cache = (cache or default_cache()).resolve()
    packages = cache / f"preview-{_digest(SOURCES / 'package-lock.json')}"
    node = node or find_node()
    if not (packages / "node_modules").exists():
        report(f"installing Grafana's libraries from npm ({node.origin} Node.js)")
        # Declared peers of the libraries contradict each other about React; none of them is missing.
        install_packages(node, SOURCES, packages, options=["--legacy-peer-deps"])
    page = packages / f"page-{_digest(*sorted(PAGE.iterdir()))}"
    if not page.exists():
        report("building the page")
        _build(node, packages, page)
    modules = packages / "node_modules"
    return Bundle(
        script=page / "main.js",
        styles=page / "main.css",
        images=modules / "@grafana/ui/dist/public/img",
        fonts=modules / "@fontsource/inter/files",
    )


def _build(node: Node, packages: Path, page: Path) -> None:
    # Beside node_modules, so that the imports of the page are found there.
    folder = packages / "page"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PAGE, folder)
    partial = page.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    run_checked(
        "building the page",
        [str(node.program), str(folder / "build.mjs"), str(partial)],
        cwd=packages,
        advice=f"Remove {packages} and try again.",
    )
    partial.rename(page)


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
