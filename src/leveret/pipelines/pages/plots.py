"""Plots as SVG elements: stacks over time, and lengths side by side.

Text in them comes from messages: it goes through `element`, which escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from leveret.pipelines.pages.markup import Attribute, Markup, element
from leveret.pipelines.pages.parts import moment_text

#: One colour a key, told apart also by the colour-blind (Okabe and Ito); the last is for the rest.
COLOURS: Final = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#b8a900",
    "#8a8f98",
)

#: Keys that are told apart in a stack, and bars of one plot.
BANDS_MAX: Final = len(COLOURS) - 1
BARS_MAX: Final = 120

WIDTH: Final = 960
HEIGHT: Final = 300
LEFT: Final = 70
BOTTOM: Final = 40
TOP: Final = 12

#: Of `lengths`: a row, and how many of them are drawn.
ROW_HEIGHT: Final = 22
LENGTHS_MAX: Final = 20
_NAME_WIDTH: Final = 330
_NAME_CHARACTERS: Final = 46


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a bar: `count` of the key with this rank; `BANDS_MAX` is the rest's."""

    start: datetime
    rank: int
    count: int


def stacks(bars: Sequence[Bar], names: Sequence[str], bar_seconds: int, what: str) -> list[Markup]:
    """Return a plot of stacked bars in order of time, and its legend; `names` by rank."""
    first, end = bars[0].start, bars[-1].start + timedelta(seconds=bar_seconds)
    tops: dict[datetime, int] = {}
    for bar in bars:
        tops[bar.start] = tops.get(bar.start, 0) + bar.count
    scale = _Scale(first, (end - first).total_seconds(), rounded_up(max(tops.values())))
    drawn: dict[datetime, int] = {}
    shapes = []
    for bar in bars:
        base = drawn.get(bar.start, 0)
        drawn[bar.start] = base + bar.count
        label = f"{moment_text(bar.start)} {_name(names, bar.rank)}: {bar.count:,}"
        shapes.append(
            element(
                "rect",
                scale.box(bar.start, bar_seconds, base, bar.count) | {"fill": COLOURS[bar.rank]},
                element("title", None, label),
            )
        )
    size: dict[str, Attribute] = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"}
    plot = element("svg", size | {"aria-label": what}, *scale.axes(), *shapes)
    return [plot, _legend(sorted({bar.rank for bar in bars}), names)]


class _Scale:
    """Moments and counts to places on the plot."""

    def __init__(self, first: datetime, seconds: float, most: int) -> None:
        self._first = first
        self._seconds = seconds
        self._most = most

    def x(self, moment: datetime) -> float:
        """Return the place of a moment."""
        part = (moment - self._first).total_seconds() / self._seconds
        return LEFT + part * (WIDTH - LEFT - 10)

    def y(self, count: int) -> float:
        """Return the place of a count."""
        return HEIGHT - BOTTOM - count / self._most * (HEIGHT - BOTTOM - TOP)

    def box(self, start: datetime, seconds: int, base: int, count: int) -> dict[str, Attribute]:
        """Return the place of a part of a bar."""
        left, right = self.x(start), self.x(start + timedelta(seconds=seconds))
        top, bottom = self.y(base + count), self.y(base)
        return {
            "x": f"{left:.2f}",
            "y": f"{top:.2f}",
            "width": f"{max(0.5, (right - left) * 0.92):.2f}",
            "height": f"{bottom - top:.2f}",
        }

    def axes(self) -> list[Markup]:
        """Return lines and labels."""
        marks = []
        for part in range(5):
            count = self._most * part // 4
            y = f"{self.y(count):.2f}"
            line: dict[str, Attribute] = {"x1": LEFT, "x2": WIDTH - 10, "y1": y, "y2": y}
            marks.append(element("line", line | {"stroke": "#8886"}))
            at: dict[str, Attribute] = {"x": LEFT - 8, "y": y, "dy": 4, "text-anchor": "end"}
            marks.append(element("text", at, f"{count:,}"))
        for part, anchor in enumerate(("start", "middle", "end")):
            moment = self._first + timedelta(seconds=self._seconds * part / 2)
            place: dict[str, Attribute] = {"x": f"{self.x(moment):.2f}", "y": HEIGHT - 14}
            marks.append(element("text", place | {"text-anchor": anchor}, moment_text(moment)))
        return marks


def _legend(ranks: Sequence[int], names: Sequence[str]) -> Markup:
    items = []
    for rank in ranks:
        square = element("rect", {"width": 10, "height": 10, "fill": COLOURS[rank]})
        patch = element("svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"}, square)
        items.append(element("li", None, patch, _name(names, rank)))
    return element("ul", {"class": "legend"}, *items)


def _name(names: Sequence[str], rank: int) -> str:
    """Return what the legend calls a key."""
    return "all other keys" if rank == BANDS_MAX else names[rank]


def lengths(rows: Sequence[tuple[str, int]], what: str) -> Markup:
    """Return a plot of the first `LENGTHS_MAX` counts as lengths under each other."""
    drawn = rows[:LENGTHS_MAX]
    most = max((count for _, count in drawn), default=0) or 1
    room = WIDTH - _NAME_WIDTH - 110
    shapes = []
    for place, (name, count) in enumerate(drawn):
        y = place * ROW_HEIGHT
        short = name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"
        at: dict[str, Attribute] = {"y": y + ROW_HEIGHT - 7}
        side: dict[str, Attribute] = {"x": _NAME_WIDTH - 8, "text-anchor": "end"}
        shapes.append(element("text", at | side, element("title", None, name), short))
        width = max(0.5, count / most * room)
        box: dict[str, Attribute] = {"x": _NAME_WIDTH, "y": y + 3, "height": ROW_HEIGHT - 6}
        shapes.append(element("rect", box | {"width": f"{width:.2f}", "fill": COLOURS[0]}))
        shapes.append(element("text", at | {"x": f"{_NAME_WIDTH + width + 6:.2f}"}, f"{count:,}"))
    size: dict[str, Attribute] = {"viewBox": f"0 0 {WIDTH} {max(1, len(drawn)) * ROW_HEIGHT}"}
    return element("svg", size | {"role": "img", "aria-label": what}, *shapes)


def rounded_up(count: int) -> int:
    """Return the next count that four equal steps lead to in round numbers."""
    step = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if count <= 4 * factor * step:
                return 4 * factor * step
        step *= 10


def bar_width(first: int | None, last: int | None, window_seconds: int) -> int:
    """Return the width of bars from the first to the last microsecond: whole windows, few bars."""
    if first is None or last is None:
        return window_seconds
    windows = (last - first) // (window_seconds * 1_000_000) + 1
    return window_seconds * -(-windows // BARS_MAX)
