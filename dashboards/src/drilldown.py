"""Ways from a panel to the alerts that watch it, their runbooks and the weekly report.

Which panel an alert is about stands in its annotation ``dashboard_url``; the way back is made from it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards.src import queries

_TARGET: Final = re.compile(r"/d/([a-z-]+)\?viewPanel=(\d+)")


def watched() -> dict[tuple[str, int], list[queries.Rule]]:
    """Return the alerts by the panel that they are about: (UID of the dashboard, id of the panel)."""
    found: defaultdict[tuple[str, int], list[queries.Rule]] = defaultdict(list)
    for rule in queries.rules():
        target = _TARGET.fullmatch(rule.document.get("annotations", {}).get("dashboard_url", ""))
        if rule.alert and target is not None:
            found[target[1], int(target[2])].append(rule)
    return dict(found)


def complete(board: model.Dashboard, *, runbook_base: str = "", report_url: str = "") -> model.Dashboard:
    """Return *board* whose panels name their alerts, with links to what the given addresses hold.

    Args:
        board: what a builder made.
        runbook_base: address in front of ``dashboards/runbooks/…``; without it no panel links to a runbook.
        report_url: address of the newest weekly report; without it no dashboard links to it.
    """
    alerts = watched()
    for panel in board.panels or ():
        if not isinstance(panel, model.Panel):
            continue
        for rule in alerts.get((board.uid or "", panel.id_val or 0), ()):
            panel.description = f"{panel.description} Alert: {rule.name}."
            if runbook_base:
                page = f"{runbook_base.rstrip('/')}/{rule.document['annotations']['runbook_url']}"
                panel.links = [*(panel.links or ()), _link(f"Runbook of {rule.name}", page)]
    if report_url:
        board.links = [*(board.links or ()), _link("Weekly report", report_url)]
    return board


def problems() -> list[str]:
    """Return alerts that lead to no panel, and runbooks that do not name the panel of their alert."""
    titles = {
        (board["uid"], panel["id"]): panel["title"]
        for board in queries.dashboards().values()
        for panel in queries.panels(board)
    }
    alerts = watched()
    found = []
    reached = {rule.name for rules in alerts.values() for rule in rules}
    for rule in queries.rules():
        if rule.alert and rule.name not in reached:
            found.append(f"{rule.name}: no dashboard_url that leads to a panel")
    for target, rules in alerts.items():
        for rule in rules:
            page = queries.ROOT / "runbooks" / f"{rule.name}.md"
            if target not in titles:
                found.append(f"{rule.name}: its dashboard_url leads to no panel")
            elif not page.is_file() or f"Panel: *{titles[target]}* of" not in page.read_text(
                encoding="utf-8"
            ):
                found.append(f"{page.name} does not name the panel {titles[target]}")
    return found


def _link(title: str, url: str) -> model.DashboardLink:
    return (
        dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url).target_blank(True).build()
    )
