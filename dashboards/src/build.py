"""Writes the dashboards: ``python -m dashboards.src.build [--out FOLDER]``; ``--check`` only compares.

The committed files know no address of an installation. With ``--runbook-base`` and ``--report-url`` panels
link to the runbooks of their alerts, and dashboards to the weekly report.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.src import drilldown, engines, gateway, overview, power, prefix, sizing

FOLDER: Final = Path(__file__).resolve().parents[1] / "grafana"
BUILDERS: Final = {
    "overview": overview.dashboard,
    "prefix": prefix.dashboard,
    "gateway": gateway.dashboard,
    "engines": engines.dashboard,
    "power": power.dashboard,
    "sizing": sizing.dashboard,
}


def render(*, runbook_base: str = "", report_url: str = "") -> dict[str, str]:
    """Return the JSON text of every dashboard by file name; the addresses are those of an installation."""
    boards = {
        name: drilldown.complete(builder(), runbook_base=runbook_base, report_url=report_url)
        for name, builder in BUILDERS.items()
    }
    return {
        f"{name}.json": json.dumps(board, cls=JSONEncoder, indent=2, ensure_ascii=False, sort_keys=True)
        + "\n"
        for name, board in boards.items()
    }


def drift(folder: Path = FOLDER) -> list[str]:
    """Return the names of files that are missing, differ from what is built, or that nobody builds."""
    built = render()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in built.keys() | found.keys() if built.get(name) != found.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with ``--check`` say which are stale (exit code 1)."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.src.build", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the JSON files")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--runbook-base", default="", help="address in front of dashboards/runbooks/…")
    parser.add_argument("--report-url", default="", help="address of the newest weekly report")
    options = parser.parse_args(arguments)
    if options.check:
        stale = drift(options.out)
        for name in stale:
            sys.stderr.write(f"{name} is not what the builders make; run python -m dashboards.src.build\n")
        return 1 if stale else 0
    options.out.mkdir(parents=True, exist_ok=True)
    for name, text in render(runbook_base=options.runbook_base, report_url=options.report_url).items():
        (options.out / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{options.out / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
