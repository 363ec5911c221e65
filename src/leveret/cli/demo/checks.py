"""The checks of the demo, and the table with their results."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leveret.escaping import escaped


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, the measured result, and whether the claim holds."""

    claim: str
    found: str
    holds: bool


class Checks:
    """The checks of one run."""

    def __init__(self) -> None:
        self._all: list[Check] = []

    def add(self, claim: str, found: str, holds: bool) -> None:
        """Add a check."""
        self._all.append(Check(claim, found, holds))

    def equal(self, claim: str, found: int, wanted: int) -> None:
        """Add a check that a number has the expected value."""
        text = f"{found:,}" if found == wanted else f"{found:,}, not {wanted:,}"
        self.add(claim, text, found == wanted)

    @property
    def hold(self) -> bool:
        """Whether all checks hold, and there is at least one."""
        return bool(self._all) and all(check.holds for check in self._all)

    def print(self, console: Console) -> None:
        """Print all checks and a summary."""
        table = Table(box=None, pad_edge=False)
        for name in ("", "check", "found"):
            table.add_column(name)
        for check in self._all:
            mark = Text("ok", style="green") if check.holds else Text("FAILED", style="bold red")
            table.add_row(mark, Text(escaped(check.claim)), Text(escaped(check.found)))
        console.print(table)
        failed = sum(not check.holds for check in self._all)
        if failed:
            console.print(f"{failed} of {len(self._all)} checks FAILED", style="bold red")
        else:
            console.print(f"all {len(self._all)} checks hold", style="bold green")
