"""Charts as self-contained SVG: Altair writes the specification, vl-convert draws it without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

#: Stand-ins in the drawing, replaced by the page's own colours so that light and dark both work.
_INK: Final = "#010203"
_RULE: Final = "#040506"
#: Told apart without colour vision, and with contrast on white as on near-black.
_PALETTE: Final = {
    "realised": "#d55e00",
    "potential, any age": "#0f7ac0",
    "potential within 3600 s": "#3f9fd8",
    "potential within 300 s": "#7db8d9",
    "engine": "#0a8a66",
}
_WIDTH: Final = 420


def draw(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the charts that the figures allow, by name, as SVG text."""
    charts: dict[str, str] = {}
    length = figures["prompt_length"]
    if length.get("value"):
        charts["prompt_length"] = _prompt_length(length["display_histogram"])
    hit = figures["prefix_hit"]
    if hit.get("value"):
        charts["hit_by_position"] = _hit_bars(
            hit["by"]["position"], "position", "position of the call in its turn"
        )
        charts["hit_by_category"] = _hit_bars(hit["by"]["category"], "category", "category of the call")
        charts["hit_by_idle"] = _hit_bars(hit["by"]["idle_bin"], "idle_bin", "idle time before the call")
        if len(hit["hourly"]) > 1:
            charts["hit_hourly"] = _hit_lines(hit["hourly"])
    agents = figures["agents_per_megawatt"]
    if agents.get("values"):
        charts["agents"] = _agents(agents["values"])
    return {name: svg for name, svg in charts.items() if svg}


def _prompt_length(buckets: Sequence[Mapping[str, Any]]) -> str:
    used = [i for i, b in enumerate(buckets) if b["calls"]]
    rows = [
        {"order": i, "bucket": _bucket(b), "calls": b["calls"]}
        for i, b in enumerate(buckets[used[0] : used[-1] + 1] if used else ())
    ]
    return _bars(rows, "bucket", "calls", "prompt tokens", "calls")


def _bucket(bucket: Mapping[str, Any]) -> str:
    def short(tokens: int) -> str:
        return f"{tokens // 1_000_000}M" if tokens >= 1_000_000 else f"{tokens // 1000}K"

    if bucket["up_to"] is None:
        return f"> {short(bucket['above'])}"
    return f"≤ {short(bucket['up_to'])}"


def _hit_bars(rows: Sequence[Mapping[str, Any]], column: str, title: str) -> str:
    long = []
    for i, row in enumerate(rows):
        for key, name in _series(row):
            if row.get(key) is not None:
                long.append(
                    {"order": i, "group": str(row[column]).replace("_", " "), "series": name, "hit": row[key]}
                )
    if not long:
        return ""
    import altair as alt

    names = [n for n in _PALETTE if any(r["series"] == n for r in long)]
    chart = (
        alt.Chart(_rows(long))
        .mark_bar()
        .encode(
            x=alt.X(
                "group:N",
                sort=alt.EncodingSortField("order", op="min"),
                title=title,
                axis=alt.Axis(labelAngle=-30),
            ),
            xOffset=alt.XOffset("series:N", sort=names),
            y=alt.Y(
                "hit:Q",
                title="share of prompt tokens",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%"),
            ),
            color=alt.Color(
                "series:N", scale=_scale(names), legend=alt.Legend(title=None, orient="top", columns=2)
            ),
        )
        .properties(width=_WIDTH, height=200)
    )
    return _svg(chart, f"Prefix hit by {title}")


def _series(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    named = [("realised", "realised"), ("potential_inf", "potential, any age")]
    return named + [
        (k, f"potential within {k.removeprefix('potential_')} s")
        for k in ("potential_3600", "potential_300")
        if k in row
    ]


def _hit_lines(hourly: Sequence[Mapping[str, Any]]) -> str:
    import altair as alt

    names = {"realised": "realised", "potential_inf": "potential, any age", "engine": "engine"}
    known = {row["hour"]: row for row in hourly}
    first, last = (datetime.fromisoformat(row["hour"]) for row in (hourly[0], hourly[-1]))
    hours = [first + timedelta(hours=n) for n in range(int((last - first).total_seconds() // 3600) + 1)]
    long = [
        {"hour": hour.isoformat() + "Z", "series": name, "hit": known.get(hour.isoformat(), {}).get(key)}
        for hour in hours
        for key, name in names.items()
    ]  # an hour without a value breaks the line
    used = [n for n in _PALETTE if any(r["series"] == n and r["hit"] is not None for r in long)]
    long = [r for r in long if r["series"] in used]
    if not long:
        return ""
    chart = (
        alt.Chart(_rows(long))
        .mark_line(point=alt.OverlayMarkDef(size=18))
        .encode(
            x=alt.X(
                "hour:T",
                title="hour (UTC)",
                scale=alt.Scale(type="utc"),
                axis=alt.Axis(format="%d %b %H:%M", labelAngle=-30, tickCount=6),
            ),
            y=alt.Y(
                "hit:Q",
                title="share of prompt tokens",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format=".0%"),
            ),
            color=alt.Color("series:N", scale=_scale(used), legend=alt.Legend(title=None, orient="top")),
        )
        .properties(width=_WIDTH, height=200)
    )
    return _svg(chart, "Prefix hit hour by hour")


def _agents(values: Sequence[Mapping[str, Any]]) -> str:
    import altair as alt

    rows = [
        {
            "order": i,
            "state": r["state"].replace("_", "-"),
            "tier": r["tier"],
            "low": r["value"],
            "high": r["value_upper"],
        }
        for i, r in enumerate(values)
        if r["boundary"] == values[0]["boundary"]
    ]
    tiers = list(dict.fromkeys(r["tier"] for r in rows))
    base = alt.Chart(_rows(rows)).encode(
        x=alt.X(
            "state:N",
            sort=["open", "in-turn", "llm-active"],
            title="state of the agent",
            axis=alt.Axis(labelAngle=0),
        ),
        xOffset=alt.XOffset("tier:N", sort=tiers),
    )
    bars = base.mark_bar().encode(
        y=alt.Y("low:Q", title="agents per megawatt"),
        color=alt.Color(
            "tier:N",
            sort=tiers,
            scale=alt.Scale(domain=tiers, range=["#0f7ac0", "#d55e00", "#0a8a66", "#a05195"][: len(tiers)]),
            legend=alt.Legend(title=None, orient="top", columns=2),
        ),
    )
    ranges = base.mark_rule(color=_INK, strokeWidth=2).encode(y="low:Q", y2="high:Q")
    return _svg(
        (bars + ranges).properties(width=_WIDTH, height=200), "Agents per megawatt by state and service level"
    )


def _bars(rows: Sequence[Mapping[str, Any]], x: str, y: str, x_title: str, y_title: str) -> str:
    if not rows:
        return ""
    import altair as alt

    chart = (
        alt.Chart(_rows(rows))
        .mark_bar(color=_PALETTE["potential, any age"])
        .encode(
            x=alt.X(
                f"{x}:N",
                sort=alt.EncodingSortField("order", op="min"),
                title=x_title,
                axis=alt.Axis(labelAngle=0),
            ),
            y=alt.Y(f"{y}:Q", title=y_title, axis=alt.Axis(tickMinStep=1)),
        )
        .properties(width=_WIDTH, height=200)
    )
    return _svg(chart, f"{y_title} by {x_title}")


def _rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    inline: Any = alt.InlineData  # its constructor carries no types
    return inline(values=list(rows))


def _scale(names: Sequence[str]) -> Any:
    import altair as alt

    return alt.Scale(domain=list(names), range=[_PALETTE[n] for n in names])


def _svg(chart: Any, label: str) -> str:
    """Draw a chart; ink and rules follow the page, and the drawing scales with its column."""
    import vl_convert

    styled = (
        chart.configure(background="transparent", font="sans-serif")
        .configure_axis(
            labelColor=_INK, titleColor=_INK, domainColor=_RULE, tickColor=_RULE, gridColor=_RULE,
            gridOpacity=0.35, labelFontSize=12, titleFontSize=12, titleFontWeight="normal",
        )
        .configure_legend(labelColor=_INK, labelFontSize=12, symbolType="square")
        .configure_view(stroke=None)
    )  # fmt: skip
    svg: str = vl_convert.vegalite_to_svg(styled.to_dict(), vl_version="v6_1")
    svg = svg.replace(_INK, "currentColor").replace(_RULE, "var(--rule)")
    svg = re.sub(r"<svg ", f'<svg role="img" aria-label="{label}" ', svg, count=1)
    return re.sub(r'(<svg [^>]*?)width="[\d.]+" height="[\d.]+"', r"\1", svg, count=1)
