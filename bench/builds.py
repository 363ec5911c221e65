"""Two builds of Leveret beside each other: which Python runs the other, and how the rounds compare.

A ratio of speeds is how many times faster this build is than the other: above 1 it is faster, in
messages a second or in time.  One of instructions is how many times more it executes.  Ratios are
taken round by round, so that what the machine does meanwhile meets both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Where a checkout or a virtual environment has its Python.
PYTHONS: Final = (".venv/bin/python", "bin/python")


def python_of(path: Path) -> str:
    """Return the Python that runs the build at a path: an executable, a checkout or a venv.

    Raises: ValueError: there is none.
    """
    places = [path, *(path / python for python in PYTHONS)]
    for place in places:
        if place.is_file():
            # Not resolved: a venv's Python is a link, and knows its venv by the link's place.
            return str(place.absolute())
    raise ValueError(f"{path}: neither a Python nor a directory with {' or '.join(PYTHONS)}")


@dataclass(frozen=True)
class Compared:
    """The ratios of all rounds of a scenario."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float | None:
        """Return the median of the rounds; None where nothing was measured."""
        return statistics.median(self.rounds) if self.rounds else None

    @property
    def spread(self) -> float | None:
        """Return the difference of the best and the worst round."""
        return max(self.rounds) - min(self.rounds) if self.rounds else None


def compare(ours: Sequence[float], theirs: Sequence[float], *, less_is_better: bool) -> Compared:
    """Return the ratios of rounds that stand at the same places.

    Where one build has failed in a round nothing tells which are pairs, and there is no ratio.
    """
    if len(ours) != len(theirs) or not all(ours) or not all(theirs):
        return Compared(())
    pairs = zip(theirs, ours, strict=True) if less_is_better else zip(ours, theirs, strict=True)
    return Compared(tuple(above / below for above, below in pairs))


def as_json(value: object) -> object:
    """Return what `json` cannot write itself.  Raises: TypeError: it is nothing of ours."""
    if isinstance(value, Compared):
        return {"rounds": value.rounds, "median": value.median, "spread": value.spread}
    raise TypeError(f"{type(value).__name__} is no JSON")


def table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return a Markdown table of what two builds did, scenario by scenario."""
    head = ["scenario", *names, "ratio of each round", "median", "spread"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        figures = [row["figures"][name] for name in names]
        compared: Compared = row["compared"]
        cells = [
            f"{row['title']} ({row['unit']})",
            *(f"{value:,.0f}" if value is not None else "-" for value in figures),
            " ".join(f"{ratio:.3f}" for ratio in compared.rounds) or "-",
            *(_ratio(value) for value in (compared.median, compared.spread)),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
