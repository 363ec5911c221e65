"""The table of what was killed and counted; a row for each thing that was read or written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = (
    "kills", "published", "rows", "distinct", "lost", "phantom", "doubled", "disorder",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What came of one scenario at one place.

    `lost` were published and are not there, `phantom` are there and were not published, `doubled`
    are there again without being marked, `disorder` counts rows that stand behind a later one.
    """

    name: str
    kills: int
    published: int
    rows: int
    distinct: int
    lost: int
    phantom: int
    doubled: int
    disorder: int
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether every promise was kept, and something was tried."""
        broken = self.lost + self.phantom + self.doubled + self.disorder
        return broken == 0 and self.kills > 0 and self.distinct == self.published > 0


def failed(name: str, reason: str) -> Row:
    """Return the row of a scenario that came to no end."""
    return Row(name, 0, 0, 0, 0, 0, 0, 0, 0, note=reason)


def line(row: Row) -> str:
    """Return a row in one line, as it comes."""
    counts = ", ".join(f"{getattr(row, column):,} {column}" for column in COLUMNS)
    return f"{row.name}: {counts}: {'holds' if row.holds else 'BROKEN'}"


def table(rows: Sequence[Row]) -> str:
    """Return the table as text."""
    cells = [["", *COLUMNS, ""]]
    for row in rows:
        counts = [f"{getattr(row, column):,}" for column in COLUMNS]
        verdict = "holds" if row.holds else "BROKEN"
        cells.append([row.name, *counts, f"{verdict}: {row.note}" if row.note else verdict])
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    lines = []
    for first, *numbers, last in cells:
        middle = [text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *middle, last]).rstrip())
    broken = [row.name for row in rows if not row.holds]
    end = f"BROKEN: {', '.join(broken)}" if broken else "nothing broken"
    # Kills are not added up: what one kill hit may be counted at two places.
    return "\n".join([*lines, "", f"{len(rows):,} places counted; {end}"])
