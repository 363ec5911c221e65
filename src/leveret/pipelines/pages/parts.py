"""What the pages of the jobs are made of: style, totals, tables and words for numbers.

A page is one file for a person: it loads nothing, its plots are SVG in it (`plots`), and whatever
came from messages is escaped where it becomes an element (`markup`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from leveret.pipelines.pages.markup import Attribute, Markup, document, element

#: Rows of a table on a page; a browser is slow with more.
ROWS_SHOWN: Final = 2000

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


def job_page(title: str, *body: Markup) -> str:
    """Return a whole page under a heading, in the style of all jobs."""
    return document(title, STYLE, element("h1", None, title), *body)


def write_page(path: str | Path, page: str) -> None:
    """Write a page to a file."""
    Path(path).write_text(page, encoding="utf-8")


def totals(numbers: Iterable[tuple[str, str]]) -> Markup:
    """Return the numbers at the top of a page, each with what it counts."""
    items = [element("li", None, element("b", None, number), word) for number, word in numbers]
    return element("ul", {"class": "totals"}, *items)


def heading(text: str) -> Markup:
    """Return the heading of a section."""
    return element("h2", None, text)


def paragraph(text: str) -> Markup:
    """Return a paragraph."""
    return element("p", None, text)


def cut_note(shown: int, total: int, what: str) -> Markup:
    """Return the sentence that says how much of a table is shown."""
    text = f"All {total:,} rows." if shown == total else f"The {shown:,} {what} of {total:,}."
    return element("p", None, text)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table that scrolls; whole numbers are grouped and stand to the right.

    A column whose name begins with `#` holds numbers; the mark is not shown.
    """
    numeric = [name.startswith("#") for name in columns]
    head = [
        element("th", {"scope": "col", **_class(number)}, name.removeprefix("#"))
        for name, number in zip(columns, numeric, strict=True)
    ]
    body = [
        element(
            "tr",
            None,
            *(
                element("td", _class(number), f"{cell:,}" if isinstance(cell, int) else cell)
                for cell, number in zip(row, numeric, strict=True)
            ),
        )
        for row in rows
    ]
    made = element(
        "table",
        None,
        element("thead", None, element("tr", None, *head)),
        element("tbody", None, *body),
    )
    return element("div", {"class": "scroll", "tabindex": 0}, made)


def _class(number: bool) -> dict[str, Attribute]:
    return {"class": "n"} if number else {}


# -- words for numbers -----------------------------------------------------------------------------


def moment_text(moment: datetime | None) -> str:
    """Return a moment to the second."""
    return "no time" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def bytes_text(count: float) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def span_text(seconds: int) -> str:
    """Return a number of seconds in the largest unit that divides it."""
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return plural(seconds // size, word)
    return plural(seconds, "second")


def plural(count: int, word: str) -> str:
    """Return a count of something."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
