"""Checks of what ships: ``python -m dashboards.src.check`` prints every problem; exit code 1 if there is any.

Without services: drift, dashboard-linter's rules, PromQL syntax and names, SDK round trip, links, runbooks.
With them, the tests run every SQL panel against PostgreSQL and :func:`live_expressions` against Prometheus.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import build, drilldown, gate, lint, queries
from gateway_plugin.sinks import metric_table

RUNBOOKS: Final = queries.ROOT / "runbooks"
_SECTIONS: Final = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]
#: Metrics that exist only after something went wrong, or with another release or setting: no data is right.
_MAY_BE_ABSENT: Final = (
    "agentwatt_events_lost_total", "agentwatt_plugin_errors_total", "agentwatt_oddities_total",
    "agentwatt_token_count_wait_seconds",
    "litellm_deployment_cooled_down_total", "litellm_deployment_failure_responses_total",
    "litellm_deployment_failed_fallbacks_total", "litellm_callback_logging_failures_metric_total",
    "agentwatt_litellm_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LiveExpression:
    """One expression to ask a Prometheus that has scraped the engine and the gateway for a while."""

    where: str
    expression: str
    #: what it needs: any of engine, gateway, litellm
    needs: frozenset[str]
    #: whether a gateway and engines under normal work must give it data
    must_have_data: bool


def live_expressions(*, window: str = "5m") -> list[LiveExpression]:
    """Return every PromQL expression of panels, variables, recording rules and alerts.

    Args:
        window: what stands for ``$__rate_interval``, at least four scrape intervals.
    """
    found = []
    for query in (*queries.of_panels(), *queries.of_variables()):
        if query.kind == "promql":
            text = queries.filled(query.text, window=window)
            found.append(LiveExpression(query.where, text, _needs(text), _must(text)))
    for rule in queries.rules():
        text = re.sub(r"\[(5m|30m|1d)\]", f"[{window}]", rule.expr) if not rule.alert else rule.expr
        must = not rule.alert and _must(text) and "job:" not in text and "board:" not in text
        found.append(LiveExpression(f"{rule.file} / {rule.name}", text, _needs(text), must))
    return found


def _needs(text: str) -> frozenset[str]:
    signs = {"engine": ("vllm:", "DCGM_"), "gateway": ("agentwatt_",), "litellm": (" litellm_", "(litellm_")}
    return frozenset(need for need, marks in signs.items() if any(mark in text for mark in marks))


def _must(text: str) -> bool:
    return not any(name in text for name in _MAY_BE_ABSENT)


def round_trip(board: dict[str, Any]) -> list[str]:
    """Return the paths of a dashboard that the SDK's model loses or changes: misspelt or unknown keys."""
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(board))), cls=JSONEncoder))
    return list(_differences(board, again, ""))


def _differences(left: Any, right: Any, path: str) -> list[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        return [
            line
            for key in sorted(left.keys() | right.keys())
            for line in _differences(left.get(key), right.get(key), f"{path}.{key}")
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line
            for n, pair in enumerate(zip(left, right, strict=True))
            for line in _differences(*pair, f"{path}[{n}]")
        ]
    return [] if left == right else [f"{path}: {left!r} became {right!r}"]


def links(boards: dict[str, dict[str, Any]]) -> list[str]:
    """Return links to dashboards that do not exist, UIDs used twice, and dashboards that nothing leads to."""
    uids = {board["uid"]: name for name, board in boards.items()}
    found = [f"{n} dashboards share a UID" for n in [len(boards) - len(uids)] if n]
    reached: Counter[str] = Counter()
    for name, board in boards.items():
        for panel in queries.panels(board):
            for link in panel.get("links") or ():
                target = re.match(r"/d/([^?/]+)", link["url"])
                if target is None or target[1] not in uids:
                    found.append(f"{name} / {panel['title']}: {link['url']} leads nowhere")
                elif target[1] == board["uid"]:
                    found.append(f"{name} / {panel['title']}: leads to itself")
                else:
                    reached[target[1]] += 1
    return found + [f"{name}: no panel leads to it" for uid, name in uids.items() if not reached[uid]]


def runbooks(folder: Path = RUNBOOKS) -> list[str]:
    """Return alerts without what an alert must have, and pages that belong to no alert."""
    found, named = [], set()
    for rule in queries.rules():
        if not rule.alert:
            continue
        annotations = rule.document.get("annotations", {})
        if missing := {"summary", "description", "runbook_url"} - annotations.keys():
            found.append(f"{rule.name} lacks {', '.join(sorted(missing))}")
            continue
        if not re.fullmatch(r"Agentwatt([A-Z][a-z]+)+", rule.name):
            found.append(f"{rule.name} is not named AgentwattSomething")
        if rule.document.get("labels", {}).get("severity") not in {"critical", "warning", "info"}:
            found.append(f"{rule.name} has no severity")
        page = folder / f"{rule.name}.md"
        named.add(page.name)
        if annotations["runbook_url"] != f"dashboards/runbooks/{page.name}" or not page.is_file():
            found.append(f"{rule.name}: no page at {annotations['runbook_url']}")
            continue
        lines = page.read_text(encoding="utf-8").splitlines()
        if lines[0] != f"# {rule.name}" or [line for line in lines if line.startswith("## ")] != _SECTIONS:
            found.append(f"{page.name}: its sections are not {', '.join(_SECTIONS)}")
    return found + [f"{p.name} belongs to no alert" for p in folder.glob("*.md") if p.name not in named]


def names() -> list[str]:
    """Return queries of panels, variables and rules that cannot be parsed or name what nobody exports."""
    found = []
    for query in (*queries.of_panels(), *queries.of_variables()):
        if query.kind == "promql":
            text = queries.filled(query.text)
            found += [f"{query.where}: {problem}" for problem in gate.problems(text, query.legend)]
    for rule in queries.rules():
        found += [f"{rule.name}: {problem}" for problem in gate.problems(rule.expr)]
    return found


def unused() -> list[str]:
    """Return the plugin's metrics that no panel and no rule shows."""
    text = " ".join([*(q.text for q in queries.of_panels()), *(r.expr for r in queries.rules())])
    return [
        metric.exposed
        for metric in metric_table.METRICS
        if not re.search(rf"\b{metric.exposed}(_bucket|_sum|_count)?\b", text)
    ]


def problems() -> list[str]:
    """Return everything that can be found without services."""
    boards = queries.dashboards()
    found = [f"{name} is stale: run python -m dashboards.src.build" for name in build.drift()]
    for name, board in boards.items():
        found += [f"{name}: {line}" for line in lint.lint(board)]
        found += [f"{name}: lost by the SDK: {line}" for line in round_trip(board)]
    return [
        *found,
        *links(boards),
        *runbooks(),
        *drilldown.problems(),
        *names(),
        *(f"{m} is shown nowhere" for m in unused()),
    ]


def main() -> int:
    """Print the problems."""
    found = problems()
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
