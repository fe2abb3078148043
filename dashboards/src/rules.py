"""Rules and alerts for one installation: ``python -m dashboards.src.rules --out FOLDER``.

The files in dashboards/prometheus are complete and can be loaded as they are. This puts the addresses of
runbooks and dashboards in front of their paths, and wraps the files for the Prometheus operator where that is
wanted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from dashboards.src import queries


def documents(runbook_base: str = "", grafana_base: str = "") -> dict[str, dict[str, Any]]:
    """Return rules and alerts by file name, with addresses in front of the paths in their annotations."""
    bases = {"runbook_url": runbook_base.rstrip("/") + "/", "dashboard_url": grafana_base.rstrip("/")}
    found = {}
    for folder in (queries.RULES, queries.ALERTS):
        for path in sorted(folder.glob("*.yaml")):
            document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
            for group in document["groups"]:
                for rule in group["rules"]:
                    for name, base in bases.items():
                        if base.strip("/") and "annotations" in rule:
                            rule["annotations"][name] = base + rule["annotations"][name]
            found[f"{path.stem}-{folder.name}.yaml"] = document
    return found


def wrapped(name: str, document: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Return *document* as a PrometheusRule; *labels* must be those that the operator selects."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "agentwatt", **labels}},
        "spec": document,
    }


def main(arguments: list[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.src.rules", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--runbook-base", default="", help="address in front of dashboards/runbooks/…")
    parser.add_argument("--grafana-base", default="", help="address of Grafana, in front of /d/…")
    parser.add_argument("--kubernetes", action="store_true", help="write PrometheusRule objects")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME=VALUE", help="label of the objects; repeat"
    )
    options = parser.parse_args(arguments)
    labels = dict(label.split("=", 1) for label in options.label)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, document in documents(options.runbook_base, options.grafana_base).items():
        written = wrapped(name.removesuffix(".yaml"), document, labels) if options.kubernetes else document
        path = options.out / name
        path.write_text(yaml.safe_dump(written, sort_keys=False, width=110), encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
