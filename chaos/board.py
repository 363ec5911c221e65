"""The scoreboard: one row for each thing that was tried, with counts and nothing else.

Invariants: a row that was skipped says why; a row of another broker is there to compare and fails
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = ("boots", "confirmed", "lost", "phantom", "altered", "violations")


@dataclass(frozen=True)
class Row:
    """What came of one scenario, or of a part of it.

    `boots` counts the runs after which the broker started again; `confirmed` the messages (or
    operations) that it had promised; `lost`, `phantom` and `altered` are messages; `violations` are
    all other broken promises.  `compared` marks another broker's row.
    """

    name: str
    runs: int
    boots: int
    confirmed: int
    lost: int
    phantom: int
    altered: int
    violations: int
    skipped: str = ""
    note: str = ""
    compared: bool = False

    @property
    def holds(self) -> bool:
        """Whether every promise was kept, as far as it was tried."""
        if self.skipped or self.compared:
            return True
        broken = self.lost + self.phantom + self.altered + self.violations
        return broken == 0 and self.boots == self.runs > 0


def skipped(name: str, reason: str) -> Row:
    """Return the row of what this machine cannot do."""
    return Row(name, 0, 0, 0, 0, 0, 0, 0, skipped=reason)


def table(rows: Sequence[Row]) -> str:
    """Return the scoreboard as text: a line for each row, then one for all."""
    cells = [["", "runs", *COLUMNS, ""]]
    for row in rows:
        if row.skipped:
            cells.append([row.name, "-", *["-"] * len(COLUMNS), f"skipped: {row.skipped}"])
            continue
        counts = [f"{getattr(row, column):,}" for column in COLUMNS]
        verdict = "compared" if row.compared else "holds" if row.holds else "BROKEN"
        note = f"{verdict}: {row.note}" if row.note else verdict
        cells.append([row.name, f"{row.runs:,}", *counts, note])
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    lines = []
    for line in cells:
        first, *numbers, last = line
        numbers = [text.rjust(width) for text, width in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *numbers, last]).rstrip())
    return "\n".join([*lines, "", _sum(rows)])


def _sum(rows: Sequence[Row]) -> str:
    ours = [row for row in rows if not row.skipped and not row.compared]
    text = (
        f"{sum(row.runs for row in ours):,} runs, {sum(row.confirmed for row in ours):,} confirmed"
    )
    broken = [row.name for row in ours if not row.holds]
    left_out = [row.name for row in rows if row.skipped]
    text += f"; BROKEN: {', '.join(broken)}" if broken else "; nothing broken"
    return text + (f"; skipped: {', '.join(left_out)}" if left_out else "")
