"""Panels with one look, and the shorthand of their queries.

In a PromQL text ``{@}`` stands for the matchers of the variables job and instance (more matchers may follow
a comma), ``{@m}`` adds the engine's model, and ``[@]`` is ``[$__rate_interval]``. A panel cannot be made
without title, description and unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as shared
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS: Final = model.DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
POSTGRES: Final = model.DataSourceRef(type_val="grafana-postgresql-datasource", uid="${postgres_datasource}")
MATCHERS: Final = 'job=~"$job",instance=~"$instance"'
Panel = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel
_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, table.Panel, bargauge.Panel)
#: Colours of thresholds.
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"


def promql(text: str) -> str:
    """Return *text* with the shorthand written out and on one line."""
    return (
        " ".join(text.split())
        .replace("{@m", "{" + MATCHERS + ',model_name=~"$model"')
        .replace("{@", "{" + MATCHERS)
        .replace("[@]", "[$__rate_interval]")
    )


class SqlQuery(Dataquery):
    """A query of Grafana's PostgreSQL data source (the SDK has no class for it)."""

    def __init__(self, sql: str, ref: str, *, series: bool) -> None:
        self._data = {
            "datasource": {"type": POSTGRES.type_val, "uid": POSTGRES.uid},
            "editorMode": "code",
            "format": "time_series" if series else "table",
            "rawQuery": True,
            "rawSql": " ".join(sql.split()),
            "refId": ref,
        }

    def to_json(self) -> dict[str, object]:
        """Return the query as Grafana stores it."""
        return dict(self._data)


class _Built(Builder[Dataquery]):
    def __init__(self, query: Dataquery) -> None:
        self._query = query

    def build(self) -> Dataquery:
        return self._query


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query: its text, its legend, and whether it is asked for one instant only."""

    text: str
    legend: str = ""
    instant: bool = False

    def target(self, ref: str) -> Builder[Dataquery]:
        """Return it as a target of a panel."""
        query = prometheus.Dataquery().expr(promql(self.text)).ref_id(ref).datasource(PROMETHEUS)
        if self.legend:
            query = query.legend_format(self.legend)
        if self.instant:
            return query.instant().format(PromQueryFormat.TABLE)
        return query.range()


@dataclass(frozen=True, slots=True)
class Sql:
    """One SQL query; *series* when its first column is a time and the others are values."""

    text: str
    series: bool = False

    def target(self, ref: str) -> Builder[Dataquery]:
        """Return it as a target of a panel."""
        return _Built(SqlQuery(self.text, ref, series=self.series))


AnyQuery = Query | Sql


def _source(queries: Sequence[AnyQuery]) -> model.DataSourceRef:
    return POSTGRES if isinstance(queries[0], Sql) else PROMETHEUS


def thresholds(*steps: tuple[float, str], base: str = GREEN) -> dashboard.ThresholdsConfig:
    """Return absolute thresholds: *base* below the first step, then each colour from its value on."""
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps(
            [model.Threshold(value=None, color=base), *(model.Threshold(value=v, color=c) for v, c in steps)]
        )
    )


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: AnyQuery,
    stacked: bool = False,
    low: float | None = None,
    high: float | None = None,
    bars: bool = False,
    span: int = 12,
    steps: dashboard.ThresholdsConfig | None = None,
    right: dict[str, str] | None = None,
    reach: float | None = None,
    past: str = "",
    link: str = "",
) -> Panel:
    """Return a time series; *low* and *high* fix the axis, *steps* are drawn as lines.

    Args:
        title: what it shows.
        description: what to do about it.
        unit: Grafana's id of the unit.
        queries: one or more, of one data source.
        stacked: series on top of each other.
        low: lower end of the axis.
        high: upper end of the axis.
        bars: bars instead of lines.
        span: columns of 24.
        steps: thresholds.
        right: series -> unit, for an axis of their own.
        reach: what the axis shows at least.
        past: a range of its own, such as ``8w``, whatever the dashboard's is.
        link: the dashboard with the details.
    """
    weekly = isinstance(queries[0], Sql)  # few points, and one alone draws no line
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(_source(queries))
        .span(span)
        .height(8)
        .line_width(1)
        .fill_opacity(60 if bars else 20 if stacked else 5)
        .show_points(
            shared.VisibilityMode.AUTO
            if bars
            else shared.VisibilityMode.ALWAYS
            if weekly
            else shared.VisibilityMode.NEVER
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(shared.LegendDisplayMode.TABLE)
            .placement(shared.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions().mode(shared.TooltipDisplayMode.MULTI).sort(shared.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(shared.StackingMode.NORMAL).group("A"))
    if bars:
        panel = panel.draw_style(shared.GraphDrawStyle.BARS)
    if low is not None:
        panel = panel.min(low)
    if high is not None:
        panel = panel.max(high)
    if reach is not None:
        panel = panel.axis_soft_max(reach)
    if past:
        panel = panel.time_from(past)
    for series, own in (right or {}).items():
        panel = panel.override_by_name(
            series,
            [
                model.DynamicConfigValue(id_val="unit", value=own),
                model.DynamicConfigValue(id_val="custom.axisPlacement", value="right"),
            ],
        )
    if steps is not None:
        panel = panel.thresholds(steps).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(shared.GraphThresholdsStyleMode.DASHED)
        )
    return _finish(panel, queries, link)


def number(
    title: str,
    description: str,
    unit: str,
    *queries: AnyQuery,
    steps: dashboard.ThresholdsConfig | None = None,
    decimals: int | None = None,
    span: int = 4,
    link: str = "",
    names: dict[str, str] | None = None,
) -> Panel:
    """Return one big number with a trace behind it; *names* replaces values by words."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(_source(queries))
        .span(span)
        .height(5)
        .graph_mode(shared.BigValueGraphMode.AREA)
        .color_mode(shared.BigValueColorMode.VALUE)
        .text_mode(shared.BigValueTextMode.AUTO)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .no_value("no data")
        .thresholds(steps or thresholds(base=BLUE))
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    if names:
        panel = panel.mappings(
            [
                model.ValueMap(
                    options={
                        value: model.ValueMappingResult(text=text, index=n)
                        for n, (value, text) in enumerate(names.items())
                    }
                )
            ]
        )
    return _finish(panel, queries, link)


def bars(
    title: str,
    description: str,
    unit: str,
    *queries: AnyQuery,
    high: float | None = None,
    span: int = 12,
    link: str = "",
) -> Panel:
    """Return one horizontal bar for each series or row."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(_source(queries))
        .span(span)
        .height(8)
        .orientation(shared.VizOrientation.HORIZONTAL)
        .display_mode(shared.BarGaugeDisplayMode.BASIC)
        .text(common.VizTextDisplayOptions().title_size(14).value_size(18))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(isinstance(queries[0], Sql)))
        .min(0)
        .thresholds(thresholds(base=BLUE))
        .no_value("no data")
    )
    if high is not None:
        panel = panel.max(high)
    return _finish(panel, queries, link)


def grid(
    title: str,
    description: str,
    unit: str,
    *queries: AnyQuery,
    units: dict[str, str] | None = None,
    widths: dict[str, int] | None = None,
    least: int = 80,
    hidden: Sequence[str] = (),
    span: int = 24,
    height: int = 9,
    link: str = "",
) -> Panel:
    """Return a table; *unit* is that of every column that *units* does not name.

    *widths* are columns' pixels; the others share what is left, at least *least* each. *hidden* are columns
    that the data source adds and nobody needs.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(_source(queries))
        .span(span)
        .height(height)
        .show_header(True)
        .min_width(least)
        .no_value("–")
    )
    if hidden:
        organised = {"excludeByName": dict.fromkeys(hidden, True)}
        panel = panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=organised))
    for column, own in (units or {}).items():
        panel = panel.override_by_name(column, [model.DynamicConfigValue(id_val="unit", value=own)])
    for column, width in (widths or {}).items():
        panel = panel.override_by_name(column, [model.DynamicConfigValue(id_val="custom.width", value=width)])
    return _finish(panel, queries, link)


def _finish(panel: _Panel, queries: Sequence[AnyQuery], link: str) -> _Panel:
    for query, ref in zip(queries, "ABCDEFGHIJ", strict=False):
        panel = panel.with_target(query.target(ref))
    if link:
        from dashboards.src import frame

        panel = panel.links([frame.panel_link(link)])
    return panel
