"""What every dashboard shares: identity, variables, links to the others, time and refresh."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards.src.panels import MATCHERS, POSTGRES, PROMETHEUS, Panel

TAG: Final = "agentwatt"
#: name -> (UID, title). A UID never changes: links and bookmarks hold it.
BOARDS: Final = {
    "overview": ("agentwatt-overview", "agentwatt / Overview"),
    "prefix": ("agentwatt-prefix", "agentwatt / Prefix cache"),
    "gateway": ("agentwatt-gateway", "agentwatt / Gateway"),
    "engines": ("agentwatt-engines", "agentwatt / Engines"),
    "power": ("agentwatt-power", "agentwatt / Power and agents per MW"),
    "sizing": ("agentwatt-sizing", "agentwatt / Weekly sizing"),
}
#: A metric of each kind of target, by which the variable job finds them.
_TARGETS: Final = (
    '{__name__=~"agentwatt_open_calls|vllm:num_requests_running|DCGM_FI_DEV_POWER_USAGE'
    '|DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}'
)
Row = tuple[str, list[Panel]]


def panel_link(name: str) -> dashboard.DashboardLink:
    """Return the link of a panel to another dashboard, which keeps time and variables."""
    uid, title = BOARDS[name]
    return (
        dashboard.DashboardLink(title.removeprefix("agentwatt / "))
        .type(model.DashboardLinkType.LINK)
        .url(f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}")
    )


def build(
    name: str,
    description: str,
    rows: Iterable[Row],
    *,
    live: bool = True,
    sql: bool = False,
    model_variable: bool = False,
    groups: bool = False,
) -> model.Dashboard:
    """Return a dashboard.

    Args:
        name: key in :data:`BOARDS`.
        description: the question that it answers.
        rows: title of each row and its panels.
        live: it has panels of Prometheus.
        sql: it has panels of PostgreSQL.
        model_variable: with a variable of the engines' models.
        groups: with a variable of the model groups of the exported tables.
    """
    uid, title = BOARDS[name]
    board = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG, name])
        .timezone("utc")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .refresh("1m" if live else "")
        .time("now-6h" if live else "now-8w", "now")
        .editable()
        .link(
            dashboard.DashboardLink("Other views")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(True)
        )
    )
    if live:
        board = (
            board.with_variable(_source("prometheus_datasource", "Prometheus data source", "prometheus"))
            .with_variable(_labels("job", "Job", f"label_values({_TARGETS}, job)"))
            .with_variable(
                _labels(
                    "instance",
                    "Instance",
                    f'label_values({_TARGETS[:-1]},job=~"$job"}}, instance)',
                )
            )
        )
    if model_variable:
        query = f"label_values(vllm:num_requests_running{{{MATCHERS}}}, model_name)"
        board = board.with_variable(_labels("model", "Model", query))
    if sql:
        board = board.with_variable(
            _source("postgres_datasource", "PostgreSQL data source", POSTGRES.type_val or "")
        )
    if groups:
        board = board.with_variable(
            dashboard.QueryVariable("model_group")
            .label("Model group")
            .datasource(POSTGRES)
            .query("SELECT DISTINCT model_group FROM agentwatt.agentwatt_call_day ORDER BY model_group")
            .definition("SELECT DISTINCT model_group FROM agentwatt.agentwatt_call_day ORDER BY model_group")
            .refresh(model.VariableRefresh.ON_DASHBOARD_LOAD)
            .multi(True)
            .include_all(True)
            .current(model.VariableOption(selected=True, text="All", value="$__all"))
        )
    for heading, panels in rows:
        board = board.with_row(dashboard.Row(heading))
        for panel in panels:
            board = board.with_panel(panel)
    built = board.build()
    for made in built.panels or ():
        # From the title, so that a link to a panel outlives a panel that is put before it.
        made.id_val = zlib.crc32((made.title or "").encode()) & 0x7FFFFFFF
    return built


def _source(name: str, label: str, kind: str) -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable(name).label(label).type(kind)


def _labels(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query(query)
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )
