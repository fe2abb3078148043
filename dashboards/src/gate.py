"""The gate of names: a query may only name metrics and labels that somebody exports.

promtool accepts any name, and a panel of a renamed metric is simply empty; so each query is parsed and every
selector, matcher value, grouping and legend is held against :mod:`dashboards.src.exported` and the recording
rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import promql_parser

from dashboards.src import exported, queries

_LEGEND: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def problems(expression: str, legend: str = "") -> list[str]:
    """Return what is wrong with a PromQL text whose variables are filled in."""
    try:
        tree = promql_parser.parse(expression)
    except ValueError as error:
        return [f"cannot be parsed: {error}"]
    nodes: list[Any] = []
    promql_parser.walk(tree, lambda node: nodes.append(node))
    found: list[str] = []
    labels: set[str] = set()
    open_ended = False
    for node in nodes:
        selector = getattr(node, "vector_selector", node)
        if not isinstance(selector, promql_parser.VectorSelector):
            continue
        names = _names(selector, recorded())
        if not names:
            found.append(f"selects no metric that anybody exports: {selector.prettify()}")
        for name in names:
            own = _labels(name, recorded())
            if own is None:
                open_ended = True
            else:
                labels |= own
            found += _matchers(name, own, selector)
    for node in nodes:
        for label in _grouping(node):
            if label not in labels and not open_ended:
                found.append(f"groups by {label}, which none of its metrics has")
    for label in _LEGEND.findall(legend):
        if label not in _kept(tree, recorded()):
            found.append(f"legend names {label}, which the result does not have")
    return list(dict.fromkeys(found))


def _names(selector: Any, recordings: dict[str, frozenset[str]]) -> list[str]:
    known = [*exported.families(), *recordings]
    if selector.name:
        return [selector.name] if selector.name in known else []
    for matcher in selector.matchers.matchers:
        if matcher.name == "__name__" and str(matcher.op) == str(promql_parser.MatchOp.Re):
            alternatives = [name for name in known if re.fullmatch(matcher.value, name)]
            missing = [a for a in _spelled_out(matcher.value) if a not in known]
            return [] if missing else alternatives
    return []


def _spelled_out(pattern: str) -> list[str]:
    """The names that a pattern of plain alternatives stands for, e.g. ``a:(b|c)_d|e``."""
    if not re.fullmatch(r"[A-Za-z0-9_:|()]+", pattern):
        return []
    group = re.fullmatch(r"([^(|]*)\(([^()]*)\)([^(|]*)", pattern)
    if group:
        return [f"{group[1]}{middle}{group[3]}" for middle in group[2].split("|")]
    return [] if "(" in pattern else pattern.split("|")


def _matchers(name: str, own: frozenset[str] | None, selector: Any) -> Iterable[str]:
    for matcher in selector.matchers.matchers:
        if matcher.name == "__name__":
            continue
        if own is None:
            if matcher.name not in exported.SCRAPE_LABELS:
                yield f"{name}: its labels are unknown, so {matcher.name} cannot be matched"
        elif matcher.name not in own:
            yield f"{name} has no label {matcher.name}"
        else:
            yield from _closed_values(name, matcher)


def _closed_values(name: str, matcher: Any) -> Iterable[str]:
    """Values of the plugin's closed labels, and bucket bounds, must exist."""
    family = exported.families().get(name)
    allowed = dict(family.values).get(matcher.name) if family else None
    if matcher.name == "le" and family is not None:
        allowed = exported.bounds(family.name)
    if allowed is None or matcher.value == ".+":
        return
    if "Re" in str(matcher.op):
        if not any(re.fullmatch(matcher.value, value) for value in allowed):
            yield f"{name}: no value of {matcher.name} matches {matcher.value}"
        for part in matcher.value.split("|"):
            if re.fullmatch(r"[a-z0-9_+]+", part) and part not in allowed:
                yield f"{name}: {matcher.name} is never {part}"
    elif matcher.value not in allowed:
        yield f"{name}: {matcher.name} is never {matcher.value}"


def _grouping(node: Any) -> list[str]:
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        return list(modifier.labels)
    return []


def _kept(tree: Any, recordings: dict[str, frozenset[str]]) -> frozenset[str]:
    """Return the labels that the result can have."""
    if isinstance(tree, (promql_parser.ParenExpr, promql_parser.UnaryExpr, promql_parser.SubqueryExpr)):
        return _kept(tree.expr, recordings)
    if isinstance(tree, promql_parser.AggregateExpr):
        return frozenset(tree.modifier.labels) if tree.modifier is not None else frozenset()
    if isinstance(tree, promql_parser.BinaryExpr):
        return _kept(tree.lhs, recordings) | _kept(tree.rhs, recordings)
    if isinstance(tree, promql_parser.Call):
        parts = [_kept(argument, recordings) for argument in tree.args]
        return frozenset().union(*parts) - {"le"}
    selector = getattr(tree, "vector_selector", tree)
    if isinstance(selector, promql_parser.VectorSelector):
        names = _names(selector, recordings)
        return frozenset().union(*(_labels(name, recordings) or () for name in names))
    return frozenset()


def _labels(name: str, recordings: dict[str, frozenset[str]]) -> frozenset[str] | None:
    return recordings[name] if name in recordings else exported.labels_of(name)


@cache
def recorded() -> dict[str, frozenset[str]]:
    """Return the recording rules' names with the labels that each keeps; a rule may use those before it."""
    found: dict[str, frozenset[str]] = {}
    for rule in queries.rules():
        if not rule.alert:
            found[rule.name] = _kept(promql_parser.parse(rule.expr), found)
    return found
