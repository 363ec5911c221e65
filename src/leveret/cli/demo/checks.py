"""What must hold, and the table that says whether it did."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leveret.escaping import escaped


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, what was found, and whether it holds."""

    claim: str
    found: str
    holds: bool


class Checks:
    """The checks of one run."""

    def __init__(self) -> None:
        self._all: list[Check] = []

    def add(self, claim: str, found: str, holds: bool) -> None:
        """Note a check."""
        self._all.append(Check(claim, found, holds))

    def equal(self, claim: str, found: int, wanted: int) -> None:
        """Note that a number is to be the wanted one."""
        text = f"{found:,}" if found == wanted else f"{found:,}, not {wanted:,}"
        self.add(claim, text, found == wanted)

    @property
    def hold(self) -> bool:
        """Whether all hold, and there are any."""
        return bool(self._all) and all(check.holds for check in self._all)

    def print(self, console: Console) -> None:
        """Print all of them and the sum."""
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
