"""Two builds of Leveret beside each other: ratios of each round, and instructions per message.

    .venv/bin/python bench/builds.py PATH [--rounds 7] [--only durable] [--json]

compares the build that is installed for the Python that runs this with that at PATH: its Python, or
its checkout or virtual environment.  A ratio of speeds is how many times faster this build is than
the other: above 1 it is faster, in messages a second or in time.  One of instructions or processor
time is how many times more it takes.  Ratios are taken round by round, so that what the machine
does meanwhile meets both.  See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import instructions
import sides
from charts import Table
from scenarios import SCENARIOS, Figures, Load, Scenario, by_name, chosen, measure, say

#: Where a checkout or a virtual environment has its Python.
PYTHONS: Final = (".venv/bin/python", "bin/python")

#: The builds, in the order of columns.
LEVERET: Final = "Leveret"
OTHER: Final = "the other"

#: The figure that tells what a message costs the broker, in microseconds of its threads.  It varies
#: less than a rate where other work keeps the machine busy.
PROCESSOR: Final = "processor"


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

    If a build failed in a round, the pairs are unknown, and there are no ratios.
    """
    if len(ours) != len(theirs) or not all(ours) or not all(theirs):
        return Compared(())
    pairs = zip(theirs, ours, strict=True) if less_is_better else zip(ours, theirs, strict=True)
    return Compared(tuple(above / below for above, below in pairs))


def as_json(value: object) -> object:
    """Serialize a `Compared` for `json.dumps`.  Raises: TypeError for any other object."""
    if isinstance(value, Compared):
        return {"rounds": value.rounds, "median": value.median, "spread": value.spread}
    raise TypeError(f"{type(value).__name__} is no JSON")


def row(
    scenario: Scenario, unit: str, rounds: dict[str, list[float]], *, less_is_better: bool = False
) -> dict[str, Any]:
    """Return a row of a table: the medians of both builds, and their ratios."""
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "unit": unit,
        "figures": {name: statistics.median(of) if of else None for name, of in rounds.items()},
        "rounds": rounds,
        "compared": compare(rounds[LEVERET], rounds[OTHER], less_is_better=less_is_better),
    }


def rows(
    found: dict[str, dict[str, Figures]], figure: str | None, unit: str
) -> list[dict[str, Any]]:
    """Return a row for each scenario of a figure, or of the one that counts in it."""
    made = []
    for name, sides_of in found.items():
        scenario = by_name(name)
        rounds = {
            side: sides_of.get(side, {}).get(figure or scenario.figure, [])
            for side in (LEVERET, OTHER)
        }
        less = figure is None and scenario.unit == "µs"
        made.append(row(scenario, unit or scenario.unit, rounds, less_is_better=less))
    return made


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table of what two builds did, scenario by scenario."""
    lines = [["scenario", LEVERET, OTHER, "ratio of each round", "median", "spread"]]
    for one in rows:
        figures = [one["figures"][name] for name in (LEVERET, OTHER)]
        compared: Compared = one["compared"]
        lines.append(
            [
                f"{one['title']} ({one['unit']})",
                *(f"{value:,.0f}" if value is not None else "-" for value in figures),
                " ".join(f"{ratio:.3f}" for ratio in compared.rounds) or "-",
                *("-" if n is None else f"{n:.3f}" for n in (compared.median, compared.spread)),
            ]
        )
    return Table(lines).markdown()


def load_of(side: sides.Side, cpus: set[int]) -> Load:
    """Return what puts a scenario on a build, and adds its processor time."""

    def load(scenario: Scenario, queue: str, seconds: float) -> dict[str, float]:
        spent = sides.processor_seconds(side)
        figures = sides.generate(side, scenario.flags, queue, seconds, cpus)
        messages = figures.get("delivered", 0) * seconds
        spent = sides.processor_seconds(side) - spent
        return figures | {PROCESSOR: spent * 1e9 / messages if messages else 0}

    return load


def counted(
    wanted: Sequence[Scenario], pythons: dict[str, str], messages: int, directory: Path
) -> Iterator[dict[str, Any]]:
    """Yield a row of instructions per message for each scenario that counts.

    Raises: CountError, GeneratorError.
    """
    how = instructions.method() if wanted else ""
    for scenario in wanted:
        found = {}
        for name, python in pythons.items():
            say(f"instructions by {how}: {scenario.title}: {name}")
            count = max(int(messages * scenario.counted), 1)
            found[name] = instructions.count(python, scenario.flags, count, directory, how)
        yield row(scenario, f"instructions/msg by {how}", found)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "other", metavar="PATH", type=_python_path,
        help="the other build: its Python, or its checkout or virtual environment",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure")
    parser.add_argument("--only", action="append", choices=[s.name for s in SCENARIOS])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--cpus", choices=["one", "all"], default="all", help="a broker's cores")
    parser.add_argument(
        "--instructions", metavar="N", type=int, default=20_000,
        help="messages by which instructions are counted; 0 counts none",
    )  # fmt: skip
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=temporary, help="where data lies: a real disk")
    return parser.parse_args(given)


def _python_path(text: str) -> str:
    try:
        return python_of(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    """Measure and print."""
    options = arguments()
    sides.build_generator()
    wanted = chosen(options.only)
    pythons = {LEVERET: sys.executable, OTHER: options.other}
    broker, generator = sides.cores(options.cpus)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(sides.leveret(python, name, options.dir, broker))
            for name, python in pythons.items()
        ]
        loads = {side.name: load_of(side, generator) for side in started}
        found, failures = measure(loads, wanted, options.rounds, options.seconds)
    tables = {
        "scenarios": rows(found, None, ""),
        "costs": rows(found, PROCESSOR, "processor ns/msg"),
    }
    try:
        tables["instructions"] = [
            *counted(
                [one for one in wanted if one.counted and options.instructions],
                pythons,
                options.instructions,
                options.dir,
            )
        ]
    except (instructions.CountError, sides.GeneratorError) as error:
        failures.append(f"instructions: {error}")
    versions = {name: sides.version(python) for name, python in pythons.items()}
    about = sides.machine() | {"broker cores": options.cpus, "seconds": str(options.seconds)}
    if options.json:
        result = {"about": about, "versions": versions, **tables, "failures": failures}
        print(json.dumps(result, indent=2, default=as_json))
    else:
        print("\n".join(f"{name}: {versions[name]} at {pythons[name]}" for name in pythons))
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        print(*(f"\n{table(one)}" for one in tables.values() if one), sep="\n")
    for failure in failures:
        say(f"failed: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
