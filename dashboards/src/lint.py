"""The eleven rules of Grafana's dashboard-linter, which is published as a binary only.

Names of the rules and what they ask for are the linter's; the exceptions are those of ``grafana/.lint``,
which the real linter reads as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import promql_parser
import yaml

from dashboards.src import queries

#: Marks that stand for variables while a query is parsed, so that matchers on them can be recognised.
_RATE: Final = "4m59s"
_RATE_SECONDS: Final = 299
#: Plugin of a data source -> name and label of the variable that chooses it.
_SOURCES: Final = {
    "prometheus": ("prometheus_datasource", "Prometheus data source"),
    "grafana-postgresql-datasource": ("postgres_datasource", "PostgreSQL data source"),
}
Board = dict[str, Any]
Found = Iterator[tuple[str, str]]  # (panel or "", what is wrong)


def lint(board: Board) -> list[str]:
    """Return every breach of a rule that is not excepted, as ``rule: panel: what``."""
    return [
        f"{rule}: {panel}: {text}" if panel else f"{rule}: {text}"
        for rule, check in RULES.items()
        for panel, text in check(board)
        if not _excepted(rule, board["title"], panel)
    ]


@cache
def _exceptions(folder: Path = queries.GRAFANA) -> dict[str, Any]:
    return dict(yaml.safe_load((folder / ".lint").read_text(encoding="utf-8"))["exclusions"])


def _excepted(rule: str, title: str, panel: str) -> bool:
    exception = _exceptions().get(rule)
    if exception is None:
        return False
    entries = exception.get("entries")
    return entries is None or any(
        entry.get("dashboard", title) == title and entry.get("panel", panel) == panel for entry in entries
    )


def _variables(board: Board, kind: str) -> dict[str, Board]:
    return {v["name"]: v for v in board["templating"]["list"] if v["type"] == kind}


def _targets(board: Board) -> Iterator[tuple[str, str]]:
    """Yield (panel, PromQL text with marks) of every Prometheus target."""
    for panel in queries.panels(board):
        for target in panel["targets"]:
            if "expr" in target:
                yield panel["title"], target["expr"]


def _marked(text: str) -> str:
    return text.replace("$__rate_interval", _RATE).replace("$__range", "6h").replace("$__interval", "1m")


def _nodes(text: str) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(_marked(text)), lambda node: found.append(node))
    return found


def _selectors(text: str) -> Iterator[Any]:
    seen = set()
    for node in _nodes(text):
        if isinstance(node, promql_parser.MatrixSelector):
            seen.add(node.vector_selector.prettify())
            yield node.vector_selector
        elif isinstance(node, promql_parser.VectorSelector) and node.prettify() not in seen:
            yield node


def template_datasource(board: Board) -> Found:
    """A variable chooses each kind of data source, named and labelled after it."""
    sources = _variables(board, "datasource")
    if not sources:
        yield "", "no variable chooses the data source"
    for name, variable in sources.items():
        if (name, variable["label"]) != _SOURCES.get(variable["query"]):
            yield "", f"variable {name} ({variable['label']}) of {variable['query']}"


def _template_label(label: str) -> Callable[[Board], Found]:
    def check(board: Board) -> Found:
        variable = _variables(board, "query").get(label)
        if variable is None:
            yield "", f"no variable {label}"
        elif not (variable["multi"] and variable["includeAll"] and variable["allValue"] == ".+"):
            yield "", f"variable {label} must allow several values and all (.+)"
        elif variable["datasource"]["uid"] != "${prometheus_datasource}":
            yield "", f"variable {label} does not use the chosen data source"

    check.__doc__ = f"A variable chooses the {label}: several, or all."
    return check


def template_label_promql(board: Board) -> Found:
    """Queries of variables are ``label_values`` of a selector that can be parsed."""
    for name, variable in _variables(board, "query").items():
        if variable["datasource"]["type"] != "prometheus":
            continue
        query = variable["query"]
        if not query.startswith("label_values("):
            yield "", f"variable {name} is no label_values"
            continue
        try:
            promql_parser.parse(queries.filled(query[len("label_values(") : query.rindex(",")]))
        except ValueError as error:
            yield "", f"variable {name}: {error}"


def panel_datasource(board: Board) -> Found:
    """Panels and their targets use the chosen data source."""
    chosen = {f"${{{name}}}" for name in _variables(board, "datasource")}
    for panel in queries.panels(board):
        for source in (panel["datasource"], *(t["datasource"] for t in panel["targets"])):
            if source["uid"] not in chosen:
                yield panel["title"], f"data source {source['uid']} is not the chosen one"


def panel_title_description(board: Board) -> Found:
    """Panels have a title and a description."""
    for panel in queries.panels(board):
        if not panel.get("title") or len(panel.get("description", "")) < 20:
            yield panel.get("title", f"panel {panel.get('id')}"), "title or description is missing"


@cache
def _units() -> frozenset[str]:
    from grafana_foundation_sdk.models import units

    return frozenset(
        value for name, value in vars(units).items() if isinstance(value, str) and name[0] != "_"
    )


def panel_units(board: Board) -> Found:
    """Panels have a unit that Grafana knows."""
    for panel in queries.panels(board):
        config = panel["fieldConfig"]
        units = [config["defaults"].get("unit", "")]
        units += [
            p["value"] for o in config.get("overrides", ()) for p in o["properties"] if p["id"] == "unit"
        ]
        for unit in units:
            if unit not in _units():
                yield panel["title"], f"unit {unit!r}"


def target_promql(board: Board) -> Found:
    """Every Prometheus query can be parsed."""
    for panel, text in _targets(board):
        try:
            promql_parser.parse(_marked(text))
        except ValueError as error:
            yield panel, str(error)


def target_rate_interval(board: Board) -> Found:
    """Ranges of rates are ``$__rate_interval``."""
    for panel, text in _targets(board):
        for node in _nodes(text):
            matrix = isinstance(node, promql_parser.MatrixSelector)
            if matrix and node.range.total_seconds() != _RATE_SECONDS:
                yield panel, f"a range of {node.range} instead of $__rate_interval"


def _target_label(label: str) -> Callable[[Board], Found]:
    def check(board: Board) -> Found:
        for panel, text in _targets(board):
            for selector in _selectors(text):
                wanted = [m for m in selector.matchers.matchers if m.name == label]
                if not any(m.value == f"${label}" and "Re" in str(m.op) for m in wanted):
                    yield panel, f"no {label} matcher in {selector.prettify()}"

    check.__doc__ = f'Every selector has {label}=~"${label}".'
    return check


RULES: Final[dict[str, Callable[[Board], Found]]] = {
    "template-datasource-rule": template_datasource,
    "template-job-rule": _template_label("job"),
    "template-instance-rule": _template_label("instance"),
    "template-label-promql-rule": template_label_promql,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-job-rule": _target_label("job"),
    "target-instance-rule": _target_label("instance"),
}
