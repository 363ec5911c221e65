"""Tables in a page's data, limited in size, with the total number of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

#: The maximum number of rows of a table, which limits the size of a page.
ROWS_SHOWN: Final = 2000

#: The maximum number of characters of a value; a body or a header may have more.
TEXT_CHARACTERS: Final = 1000


def table(fields: str, rows: Iterable[Sequence[object]], total: int) -> dict[str, object]:
    """Return a table: the names of its fields, its first rows, and the total number of rows."""
    kept = [[_short(value) for value in row] for row in islice(rows, ROWS_SHOWN)]
    return {"fields": fields.split(), "rows": kept, "total": total}


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS:
        return f"{value[:TEXT_CHARACTERS]}…"
    return value


def span_text(seconds: int) -> str:
    """Return a number of seconds in the largest unit that divides it."""
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds % size == 0:
            return plural(seconds // size, word)
    return plural(seconds, "second")


def plural(count: int, word: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
