"""The report as one HTML page: totals, a plot, and tables; it loads nothing from anywhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from leveret.pipelines.page import Attribute, Markup, document, element
from leveret.pipelines.report import BANDS_MAX, Report, Traffic

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
#: Rows of the table on the page; a browser is slow with more.
ROWS_SHOWN: Final = 2000

WIDTH: Final = 960
HEIGHT: Final = 300
LEFT: Final = 70
BOTTOM: Final = 40
TOP: Final = 12

STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.totals { display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; list-style: none; }
.totals li { border: 1px solid var(--line); border-radius: 6px; padding: .5rem 1rem; }
.totals b { display: block; font-size: 1.3rem; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 12px; }
.scroll { max-height: 40rem; overflow: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem; text-align: left; overflow-wrap: anywhere; }
thead th { position: sticky; top: 0; background: Canvas; border-bottom: 1px solid var(--line); }
tbody tr:nth-child(even) { background: var(--soft); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; padding: 0; list-style: none; }
.legend svg { width: .9rem; height: .9rem; vertical-align: -.1rem; margin-right: .35rem; }
"""


def report_page(report: Report) -> str:
    """Return the page."""
    title = f"Traffic of {report.source}"
    return document(
        title,
        STYLE,
        element("h1", None, title),
        _totals(report),
        element("h2", None, f"Messages by {_span(report.bar_seconds)}"),
        *_plot(report),
        element("h2", None, "Keys"),
        _note(len(report.keys), report.keys_total, "keys with the most messages"),
        _table(report.keys, with_window=False),
        element("h2", None, f"Windows of {_span(report.window_seconds)}"),
        _note(min(len(report.rows), ROWS_SHOWN), report.rows_total, "rows"),
        _table(report.rows[:ROWS_SHOWN], with_window=True),
    )


def _totals(report: Report) -> Markup:
    numbers = (
        (f"{report.messages:,}", "messages"),
        (_bytes(report.bytes), "in bodies"),
        (f"{report.keys_total:,}", "exchanges and routing keys"),
        *(
            (_moment(start), word)
            for start, word in zip(_ends(report), ("from", "to"), strict=False)
        ),
    )
    items = [element("li", None, element("b", None, number), word) for number, word in numbers]
    return element("ul", {"class": "totals"}, *items)


def _ends(report: Report) -> tuple[datetime, ...]:
    """Return the first moment of the plot and the one after its last; none when it is empty."""
    if not report.bars:
        return ()
    return report.bars[0].start, report.bars[-1].start + timedelta(seconds=report.bar_seconds)


def _note(shown: int, total: int, what: str) -> Markup:
    text = f"All {total:,} rows." if shown == total else f"The {shown:,} {what} of {total:,}."
    return element("p", None, text)


# -- the plot --------------------------------------------------------------------------------------


def _plot(report: Report) -> tuple[Markup, ...]:
    """Return the plot and its legend: a stack of keys for each window."""
    if not report.bars:
        return (element("p", None, "No message bears a time."),)
    first, end = _ends(report)
    span = (end - first).total_seconds()
    tops: dict[datetime, int] = {}
    for bar in report.bars:
        tops[bar.start] = tops.get(bar.start, 0) + bar.messages
    scale = _Scale(first, span, rounded_up(max(tops.values())))
    drawn: dict[datetime, int] = {}
    shapes = []
    for bar in report.bars:
        base = drawn.get(bar.start, 0)
        drawn[bar.start] = base + bar.messages
        label = f"{_moment(bar.start)} {_key_name(report, bar.rank)}: {bar.messages:,}"
        shapes.append(
            element(
                "rect",
                scale.box(bar.start, report.bar_seconds, base, bar.messages)
                | {"fill": COLOURS[bar.rank]},
                element("title", None, label),
            )
        )
    size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": "Messages over time"}
    return element("svg", dict(size), *scale.axes(), *shapes), _legend(report)


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
            marks.append(element("text", place | {"text-anchor": anchor}, _moment(moment)))
        return marks


def _legend(report: Report) -> Markup:
    items = []
    for rank in sorted({bar.rank for bar in report.bars}):
        square = element("rect", {"width": 10, "height": 10, "fill": COLOURS[rank]})
        patch = element("svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"}, square)
        items.append(element("li", None, patch, _key_name(report, rank)))
    return element("ul", {"class": "legend"}, *items)


def _key_name(report: Report, rank: int) -> str:
    """Return what the legend calls a key."""
    if rank == BANDS_MAX:
        return "all other keys"
    key = report.keys[rank]
    return f"{key.exchange or '(default exchange)'} / {key.routing_key or '(no key)'}"


def rounded_up(count: int) -> int:
    """Return the next count that four equal steps lead to in round numbers."""
    step = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if count <= 4 * factor * step:
                return 4 * factor * step
        step *= 10


# -- tables ----------------------------------------------------------------------------------------


def _table(rows: tuple[Traffic, ...], *, with_window: bool) -> Markup:
    words = ["window"] if with_window else []
    words += ["exchange", "routing key"]
    head = [element("th", {"scope": "col"}, word) for word in words]
    head += [element("th", {"scope": "col", "class": "n"}, word) for word in ("messages", "bytes")]
    body = [element("tr", None, *_cells(row, with_window)) for row in rows]
    table = element(
        "table",
        None,
        element("thead", None, element("tr", None, *head)),
        element("tbody", None, *body),
    )
    return element("div", {"class": "scroll", "tabindex": 0}, table)


def _cells(row: Traffic, with_window: bool) -> list[Markup]:
    texts = [_moment(row.window_start)] if with_window else []
    texts += [row.exchange, row.routing_key]
    numbers = (f"{row.messages:,}", f"{row.bytes:,}")
    return [
        *(element("td", None, text) for text in texts),
        *(element("td", {"class": "n"}, number) for number in numbers),
    ]


def _moment(moment: datetime | None) -> str:
    return "no time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _span(seconds: int) -> str:
    """Return a number of seconds in the largest unit that divides it."""
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return _plural(seconds // size, word)
    return _plural(seconds, "second")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
