"""The kinds of charts of the report. Each takes plain rows and returns SVG, or nothing without a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pipeline.report import text
from pipeline.report.canvas import BLUE, GREEN, GREY, INK, ORANGE, end, extent, rows, short, spread, svg

_ROW: Final = 24
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _names(names: Sequence[str]) -> Any:
    """The y axis of a chart whose rows are names, in the order of the data."""
    import altair as alt

    return alt.Y(
        "name:N", sort=alt.EncodingSortField("order", op="min"), title=None,
        axis=alt.Axis(domain=False, ticks=False, labelPadding=6, minExtent=extent(names)),
    )  # fmt: skip


def bars(data: Sequence[tuple[str, float, str]], label: str, *, mark: str | None = None) -> str:
    """Horizontal bars of (name, value, words), top down in the order given; *mark* sets one of them apart."""
    if not data:
        return ""
    import altair as alt

    names = [short(name) for name, *_ in data]
    values = [
        {
            "order": i,
            "name": names[i],
            "value": value,
            "shown": shown,
            "colour": ORANGE if name == mark else BLUE,
        }
        for i, (name, value, shown) in enumerate(data)
    ]
    last = end(max(v for _, v, _ in data), extent(names), [s for *_, s in data])
    base = alt.Chart(rows(values)).encode(
        y=_names(names), x=alt.X("value:Q", scale=alt.Scale(domain=[0, last]), axis=None)
    )
    layers = [
        base.mark_bar(height=14).encode(color=alt.Color("colour:N", scale=None)),
        base.mark_text(align="left", dx=5).encode(text="shown:N"),
    ]
    return svg(alt.layer(*layers), label, _ROW * len(data) + 8)


def stacked(data: Sequence[Mapping[str, Any]], parts: Sequence[tuple[str, str]], label: str) -> str:
    """Horizontal bars made of parts; *parts* are (key, colour), *data* rows of name, shown and the keys."""
    if not data:
        return ""
    import altair as alt

    totals = [sum(float(r[k]) for k, _ in parts) for r in data]
    names = [short(r["name"]) for r in data]
    last = end(max(totals), extent(names), [r["shown"] for r in data])
    pieces = []
    for i, row in enumerate(data):
        start = 0.0
        for key, colour in parts:
            stop = start + float(row[key])
            pieces.append({"order": i, "name": names[i], "start": start, "end": stop, "colour": colour})
            start = stop
    ends = [
        {"order": i, "name": names[i], "end": t, "shown": r["shown"]}
        for i, (r, t) in enumerate(zip(data, totals, strict=True))
    ]
    y = _names(names)
    x = alt.X("start:Q", scale=alt.Scale(domain=[0, last]), axis=None)
    bar = (
        alt.Chart(rows(pieces))
        .mark_bar(height=14)
        .encode(y=y, x=x, x2="end:Q", color=alt.Color("colour:N", scale=None))
    )
    words = alt.Chart(rows(ends)).mark_text(align="left", dx=5).encode(y=y, x="end:Q", text="shown:N")
    return svg(bar + words, label, _ROW * len(data) + 8)


def dumbbells(data: Sequence[tuple[str, float | None, float | None]], label: str) -> str:
    """Rows of (name, realised, potential): a dot and a diamond on a scale of shares, each with its value."""
    if not data:
        return ""
    import altair as alt

    points, lines = [], []
    names = [short(name) for name, *_ in data]
    for i, (_, real, could) in enumerate(data):
        name = names[i]
        known = [v for v in (real, could) if v is not None]
        if len(known) == 2:
            lines.append({"order": i, "name": name, "low": min(known), "high": max(known)})
        same = len(known) == 2 and text.percent(real) == text.percent(could)
        for value, other, shape, colour in ((real, could, "circle", ORANGE), (could, real, "diamond", BLUE)):
            if value is None:
                continue
            left = other is not None and (value < other or (same and shape == "circle"))
            shown = "" if same and shape == "circle" else text.percent(value)
            points.append(
                {"order": i, "name": name, "value": value, "shape": shape, "colour": colour,
                 "left": shown if left and not same else "", "right": "" if left and not same else shown}
            )  # fmt: skip
    y = _names(names)
    scale = alt.Scale(domain=[-0.24, 1.24], nice=False)
    axis = alt.Axis(values=[0, 0.5, 1], format=".0%", title=None, domain=False, grid=True)
    dots = alt.Chart(rows(points)).encode(y=y, x=alt.X("value:Q", scale=scale, axis=axis))
    layers: list[Any] = []
    if lines:
        layers.append(
            alt.Chart(rows(lines)).mark_rule(color=GREY, strokeWidth=2)
            .encode(y=y, x=alt.X("low:Q", scale=scale, axis=axis), x2="high:Q")
        )  # fmt: skip
    layers += [
        dots.mark_point(filled=True, size=70, opacity=1).encode(
            shape=alt.Shape("shape:N", scale=None), color=alt.Color("colour:N", scale=None)
        ),
        dots.mark_text(align="left", dx=7).encode(text="right:N"),
        dots.mark_text(align="right", dx=-7).encode(text="left:N"),
    ]
    return svg(alt.layer(*layers), label, _ROW * len(data) + 26)


def hourly(series: Mapping[str, tuple[str, Mapping[datetime, float]]], label: str) -> str:
    """Shares by hour; *series* maps a name to (colour, hour -> share). A missing hour breaks the line."""
    series = {name: (colour, known) for name, (colour, known) in series.items() if known}
    hours = sorted({h for _, known in series.values() for h in known})
    if len(hours) < 2:
        return ""
    import altair as alt

    count = int((hours[-1] - hours[0]).total_seconds() // 3600)
    every = [hours[0] + timedelta(hours=n) for n in range(count + 1)]
    points = [
        {"hour": h.isoformat() + "Z", "name": name, "value": known.get(h), "colour": colour}
        for name, (colour, known) in series.items()
        for h in every
    ]
    last = {name: known[max(known)] for name, (_, known) in series.items()}
    places = spread(list(last.values()), 0.1)
    ends = [
        {"hour": every[-1].isoformat() + "Z", "place": place, "colour": series[name][0],
         "shown": f"{name} {text.percent(last[name])}"}
        for name, place in zip(last, places, strict=True)
    ]  # fmt: skip
    room = timedelta(hours=count * 0.62)
    domain = [f"{every[0].isoformat()}Z", f"{(every[-1] + room).isoformat()}Z"]
    step = max(1, (count // 24 + 1) // 4) if count >= 48 else 0
    ticks = (
        [h for h in every if h.hour == 0][::step] if step else every[:: max(1, len(every) // 3)]
    )  # fmt: skip
    x = alt.X(
        "hour:T", title=None, scale=alt.Scale(type="utc", domain=domain),
        axis=alt.Axis(
            format="%-d %b" if step else "%H:%M", grid=False,
            values=[
                {"year": h.year, "month": h.month, "date": h.day, "hours": h.hour, "utc": True} for h in ticks
            ],
        ),
    )  # fmt: skip
    axis = alt.Axis(values=[0, 0.5, 1], format=".0%", title=None, domain=False)
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    dense = len(every) > 60
    line = alt.Chart(rows(points)).encode(
        x=x, y=y, color=alt.Color("colour:N", scale=None), detail="name:N",
        strokeDash=alt.StrokeDash(
            "name:N", scale=alt.Scale(domain=list(series), range=[[1, 0], [5, 3], [2, 2]]), legend=None
        ),
    )  # fmt: skip
    layers: list[Any] = [line.mark_line(strokeWidth=1.5 if dense else 2)]
    if not dense:
        layers.append(line.mark_point(filled=True, size=16))
    layers.append(
        alt.Chart(rows(ends)).mark_text(align="left", dx=5).encode(
            x=x, y=alt.Y("place:Q", scale=alt.Scale(domain=[0, 1]), axis=axis), text="shown:N",
        )
    )  # fmt: skip
    return svg(alt.layer(*layers), label, 190)


def week(samples: Mapping[int, float], sized: float | None, sized_label: str, label: str) -> str:
    """Calls in flight by hour of the business week (0 = Monday 00:00), with the load that is planned for."""
    if len(samples) < 2:
        return ""
    import altair as alt

    values = [{"hour": h, "end": h + 1, "value": v, "zero": 0} for h, v in sorted(samples.items())]
    peak = max(samples, key=lambda h: samples[h])
    top = max(samples[peak], sized or 0.0) * 1.3 or 1.0
    x = alt.X(
        "hour:Q", title=None, scale=alt.Scale(domain=[0, 168], nice=False),
        axis=alt.Axis(
            values=[24 * d + 12 for d in range(7)], ticks=False, grid=False,
            labelExpr=f"{list(_DAYS)}[floor(datum.value / 24)]".replace("'", '"'),
        ),
    )  # fmt: skip
    axis = alt.Axis(title=None, domain=False, tickCount=4)
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, top]), axis=axis)
    area = alt.Chart(rows(values)).mark_rect(color=BLUE).encode(x=x, x2="end:Q", y=y, y2="zero:Q")
    where = f"{text.hour_of_week(peak)}, {text.number(samples[peak])} calls"
    right = peak >= 84
    note = (
        alt.Chart(rows([{"hour": peak, "value": samples[peak], "shown": where}]))
        .mark_text(align="right" if right else "left", dx=-4 if right else 4, dy=-7)
        .encode(x=x, y=y, text="shown:N")
    )
    layers: list[Any] = [area, note]
    if sized is not None and sized > 0:
        line = alt.Chart(
            rows([{"value": sized, "shown": sized_label, "hour": 167 if not right else 1}])
        ).encode(y=y)
        layers.append(line.mark_rule(strokeDash=[4, 3], color=INK, strokeWidth=1.5))
        layers.append(
            line.mark_text(align="left" if right else "right", dy=-6, baseline="bottom").encode(
                x=x, text="shown:N"
            )
        )
    return svg(alt.layer(*layers), label, 170)


def intervals(data: Sequence[tuple[str, float, float, float, str]], label: str) -> str:
    """Rows of (name, low, value, high, words): a dot with the line of what it may have been."""
    if not data:
        return ""
    import altair as alt

    names = [short(name) for name, *_ in data]
    last = end(max(high for *_, high, _ in data), extent(names), [s for *_, s in data])
    values = [
        {"order": i, "name": names[i], "low": low, "value": value, "high": high, "shown": shown}
        for i, (_, low, value, high, shown) in enumerate(data)
    ]
    y = _names(names)
    scale = alt.Scale(domain=[0, last])
    base = alt.Chart(rows(values)).encode(y=y)
    layers = [
        base.mark_rule(color=GREEN, strokeWidth=5, opacity=0.45).encode(
            x=alt.X("low:Q", scale=scale, axis=None), x2="high:Q"
        ),
        base.mark_point(filled=True, color=GREEN, size=60, opacity=1).encode(
            x=alt.X("value:Q", scale=scale, axis=None)
        ),
        base.mark_text(align="left", dx=6).encode(x=alt.X("high:Q", scale=scale, axis=None), text="shown:N"),
    ]
    return svg(alt.layer(*layers), label, _ROW * len(data) + 8)
