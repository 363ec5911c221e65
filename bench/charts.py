"""The page of a bench: tables, and plots as SVG, in one HTML file that loads nothing."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

#: Pixels of a plot.
WIDTH: Final = 440
HEIGHT: Final = 240
LEFT: Final = 56
RIGHT: Final = 16
TOP: Final = 12
BOTTOM: Final = 28
#: Pixels of a bar, and where bars begin: names are left of it, figures right of the bars.
ROW: Final = 22
BARS: Final = (140, 330)

#: The colours are Okabe and Ito's, which colour-blind readers tell apart.
_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0 }
th, td { border-bottom: 1px solid #8886; padding: .25rem .7rem; text-align: right }
th:first-child, td:first-child { text-align: left }
.plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem }
figure { margin: 0 } figcaption { font-weight: 600 }
svg { max-width: 100% } svg text { font-size: 12px; fill: currentColor }
.grid { stroke: #8884 } .spread { stroke: currentColor; stroke-width: 2 }
.line { fill: none; stroke-width: 2 } .wide { overflow-x: auto } pre { white-space: pre-wrap }
"""
_COLOURS: Final = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#999999")


@dataclass(frozen=True)
class Table:
    """A table of text, the first row of which is its head."""

    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([lines[0], "|---" * len(self.rows[0]) + "|", *lines[1:]])

    def html(self) -> str:
        """Return the table as HTML."""
        rows = [
            "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in row) + "</tr>"
            for kind, row in zip(["th", *["td"] * len(self.rows)], self.rows, strict=False)
        ]
        return f'<div class="wide"><table>{"".join(rows)}</table></div>'


class Colours:
    """A colour for each side, the same in all plots of a page."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def of(self, name: str) -> str:
        """Return the colour of a side."""
        return _COLOURS[self._places.setdefault(name, len(self._places)) % len(_COLOURS)]


def figure(title: str, height: float, marks: Iterable[str]) -> str:
    """Return a plot with its title."""
    svg = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}">{"".join(marks)}</svg>'
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{svg}</figure>"


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Return a text of a plot."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    """Return a line of a plot."""
    (x, y), (to_x, to_y) = start, end
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y:.1f}" width="{width:.1f}" height="16" fill="{colour}"/>'


def bars(title: str, sides: dict[str, list[float]], colours: Colours) -> str:
    """Return a plot of medians from zero on, with a line from the least round to the greatest."""
    if not sides:
        return ""
    start, end = BARS
    most = max(max(rounds) for rounds in sides.values())
    marks = []
    for place, (name, rounds) in enumerate(sides.items()):
        middle = statistics.median(rounds)
        low, x, high = (
            start + (end - start) * n / most for n in (min(rounds), middle, max(rounds))
        )
        y = place * ROW + ROW / 2
        marks += [
            text(start - 8, y + 4, name, "end"),
            _bar(start, y - 8, x - start, colours.of(name)),
            line((low, y), (high, y), "spread"),
            text(max(x, high) + 8, y + 4, f"{middle:,.0f}"),
        ]
    return figure(title, len(sides) * ROW, marks)


def curves(title: str, sides: dict[str, list[tuple[float, float]]], colours: Colours) -> str:
    """Return a plot of curves with logarithmic axes; values that are zero are left out."""
    shown = {n: [(x, y) for x, y in points if y > 0] for n, points in sides.items()}
    every = [point for points in shown.values() for point in points]
    if not every:
        return ""
    x_low, x_high = _decades(x for x, _ in every)
    y_low, y_high = _decades(y for _, y in every)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x_low) / (x_high - x_low)
        up = (math.log10(y) - y_low) / (y_high - y_low)
        wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + across * wide, HEIGHT - BOTTOM - up * high

    marks = []
    for power in range(y_low, y_high + 1):
        left, right = place(10**x_low, 10.0**power), place(10**x_high, 10.0**power)
        marks += [
            line(left, right, "grid"),
            text(left[0] - 6, left[1] + 4, f"{10.0**power:,g}", "end"),
        ]
    for power in range(x_low, x_high + 1):
        x, y = place(10.0**power, 10.0**y_low)
        marks += [line((x, y), (x, TOP), "grid"), text(x, y + 18, f"{10**power:,}", "middle")]
    for name, points in shown.items():
        places = [place(*point) for point in points]
        colour = colours.of(name)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        marks.append(f'<polyline class="line" stroke="{colour}" points="{path}"/>')
        marks += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
            f"<title>{html.escape(name)}: {value:,.3g} at {number:,.0f}</title></circle>"
            for (x, y), (number, value) in zip(places, points, strict=True)
        ]
    return figure(title, HEIGHT, marks)


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """Return the powers of ten around values, at least one apart."""
    powers = [math.log10(value) for value in values]
    low = math.floor(min(powers))
    return low, max(math.ceil(max(powers)), low + 1)


def legend(names: Iterable[str], colours: Colours) -> str:
    """Return a legend of the sides' colours."""
    marks = (
        f'<span style="color:{colours.of(name)}">■</span> {html.escape(name)}' for name in names
    )
    return f"<p>{' &nbsp; '.join(marks)}</p>"


def paragraph(words: str) -> str:
    """Return preformatted text."""
    return f"<pre>{html.escape(words)}</pre>"


def section(title: str, tables: Iterable[str], plots: Sequence[str]) -> str:
    """Return a part of a page."""
    return (
        f'<h2>{html.escape(title)}</h2>{"".join(tables)}<div class="plots">{"".join(plots)}</div>'
    )


def page(title: str, parts: Iterable[str]) -> str:
    """Return an HTML page."""
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"<h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</html>\n"
    )
