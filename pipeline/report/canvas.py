"""How every chart looks: one width, text that stays readable on a phone, and ink that follows the page.

Altair writes the specification, vl-convert draws it without a browser or a network. Charts carry their
values as labels at the marks, so that none of them needs a legend or a colour to be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

#: Stand-ins in the drawing, replaced by the page's own colours so that light and dark both work.
INK: Final = "#010203"
RULE: Final = "#040506"
#: Told apart without colour vision (Okabe and Ito), visible on white as on near-black.
BLUE: Final = "#0f7ac0"
ORANGE: Final = "#d55e00"
GREEN: Final = "#0a8a66"
GREY: Final = "#7a8794"
#: Width of a drawing. A phone of 360 px shows it at about 0.94 of its size, so 12 px stay above 11.
WIDTH: Final = 340
FONT: Final = 12


#: Width of a character of the widest common sans-serif, px at the chart's font size.
_CHARACTER: Final = 7.3
_LONGEST: Final = 24


def short(name: str) -> str:
    """A name that leaves room for the chart; the tables have it in full."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def extent(names: Sequence[str]) -> int:
    """Room for the names at the left, whatever font the reader's browser takes, px."""
    return round(_CHARACTER * max((len(n) for n in names), default=0)) + 8


def end(top: float, left: float, labels: Sequence[str]) -> float:
    """End of a scale from 0 so that labels right of the longest bar stay inside the drawing."""
    plot = WIDTH - left - 8
    room = min(_CHARACTER * max((len(t) for t in labels), default=0) + 10, 0.75 * plot)
    return (top or 1.0) * plot / (plot - room)


def rows(values: Sequence[Mapping[str, Any]]) -> Any:
    """Data that stands inside the specification."""
    import altair as alt

    inline: Any = alt.InlineData  # its constructor carries no types
    return inline(values=[dict(v) for v in values])


def svg(chart: Any, label: str, height: int) -> str:
    """Draw a chart of the common width; *label* is what a screen reader says."""
    import altair as alt
    import vl_convert

    styled = (
        chart.properties(
            width=WIDTH, height=height, autosize=alt.AutoSizeParams(type="fit", contains="padding"),
            padding=2, background="transparent",
        )
        .configure(font="sans-serif")
        .configure_axis(
            labelColor=INK, titleColor=INK, domainColor=RULE, tickColor=RULE, gridColor=RULE,
            gridOpacity=0.5, labelFontSize=FONT, titleFontSize=FONT, titleFontWeight="normal",
            labelLimit=0,
        )
        .configure_text(color=INK, fontSize=FONT)
        .configure_view(stroke=None)
    )  # fmt: skip
    drawn: str = vl_convert.vegalite_to_svg(styled.to_dict(), vl_version="v6_1")
    drawn = drawn.replace(INK, "currentColor").replace(RULE, "var(--rule)")
    drawn = re.sub(r"<svg ", f'<svg role="img" aria-label="{escape(label, quote=True)}" ', drawn, count=1)
    return re.sub(r'(<svg [^>]*?)width="[\d.]+" height="[\d.]+"', r"\1", drawn, count=1)


def spread(positions: Sequence[float], least: float) -> list[float]:
    """Move label positions apart until neighbours are *least* from each other, in the order they came."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed = list(positions)
    for _ in range(40):
        moved = False
        for low, high in pairwise(order):
            gap = placed[high] - placed[low]
            if gap < least - 1e-9:
                push = (least - gap) / 2
                placed[low] -= push
                placed[high] += push
                moved = True
        if not moved:
            break
    return placed
