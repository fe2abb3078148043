"""Every query of the dashboards and rules, read back from the files that ship, with variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
GRAFANA: Final = ROOT / "grafana"
RULES: Final = ROOT / "prometheus" / "rules"
ALERTS: Final = ROOT / "prometheus" / "alerts"
#: What stands for the variables: all of everything, as a dashboard shows when it is opened.
_PROMQL: Final = {"$__rate_interval": "5m", "$__range": "6h", "$__interval": "1m",
                  "$job": ".+", "$instance": ".+", "$model": ".+"}  # fmt: skip
_VARIABLE: Final = re.compile(r"\$\{?[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """One query of a panel (or of a variable, then ``panel`` names it with a $)."""

    dashboard: str
    panel: str
    kind: Literal["promql", "sql"]
    text: str
    legend: str = ""
    instant: bool = False

    @property
    def where(self) -> str:
        """Dashboard and panel, for messages."""
        return f"{self.dashboard} / {self.panel}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording or alerting rule."""

    file: str
    group: str
    name: str
    expr: str
    alert: bool
    document: dict[str, Any]


def dashboards(folder: Path = GRAFANA) -> dict[str, dict[str, Any]]:
    """Return the committed dashboards by file name."""
    return {p.name: json.loads(p.read_text(encoding="utf-8")) for p in sorted(folder.glob("*.json"))}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels of a dashboard, those inside rows included, rows themselves not."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def of_panels(folder: Path = GRAFANA) -> list[PanelQuery]:
    """Return every query of every panel."""
    return [
        PanelQuery(
            name.removesuffix(".json"),
            panel["title"],
            "promql" if "expr" in target else "sql",
            target.get("expr") or target["rawSql"],
            target.get("legendFormat", ""),
            bool(target.get("instant")),
        )
        for name, board in dashboards(folder).items()
        for panel in panels(board)
        for target in panel["targets"]
    ]


def of_variables(folder: Path = GRAFANA) -> list[PanelQuery]:
    """Return the query of every query variable; of ``label_values(selector, label)`` the selector."""
    found = []
    for name, board in dashboards(folder).items():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            text = variable["query"]
            if variable["datasource"]["type"] == "prometheus":
                selector = re.fullmatch(r"label_values\((.*), *([A-Za-z_]+)\)", text)
                if selector is None:
                    raise ValueError(f"{name}: variable {variable['name']} is no label_values(…): {text}")
                text = selector[1]
                kind: Literal["promql", "sql"] = "promql"
            else:
                kind = "sql"
            found.append(PanelQuery(name.removesuffix(".json"), f"${variable['name']}", kind, text))
    return found


def rules() -> list[Rule]:
    """Return every recording rule, then every alert."""
    found = []
    for path in (*sorted(RULES.glob("*.yaml")), *sorted(ALERTS.glob("*.yaml"))):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                name = rule.get("record") or rule["alert"]
                found.append(Rule(path.name, group["name"], name, rule["expr"], "alert" in rule, rule))
    return found


def filled(text: str, *, window: str = "5m") -> str:
    """Return a PromQL text without variables; *window* stands for ``$__rate_interval``.

    Raises:
        ValueError: a variable is left that nobody fills.
    """
    for name, value in {**_PROMQL, "$__rate_interval": window}.items():
        text = re.sub(rf"{re.escape(name)}(?![A-Za-z0-9_])", value.replace("\\", r"\\"), text)
    if left := _VARIABLE.search(text):
        raise ValueError(f"unknown variable at {text[left.start() : left.start() + 30]!r}")
    return text


def filled_sql(text: str, start: str, end: str, groups: tuple[str, ...]) -> str:
    """Return an SQL text with Grafana's macros and variables written out, for instants *start* to *end*.

    Raises:
        ValueError: a macro or variable is left that nobody fills.
    """
    quoted = ", ".join(f"'{g}'" for g in groups)
    text = re.sub(r"\$__timeFilter\(([^)]*)\)", rf"\1 BETWEEN '{start}' AND '{end}'", text)
    text = re.sub(r"\$\{?model_group\}?(?![A-Za-z0-9_])", quoted, text)
    if "$" in text:
        raise ValueError(f"unknown macro or variable in {text!r}")
    return text
