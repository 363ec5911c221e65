"""Leveret and RabbitMQ side by side: one run, the same load, a table of figures and ratios.

    .venv/bin/python bench/side_by_side.py [--seconds 5] [--rounds 3] [--only durable] [--json]

The broker measured is the one installed for the Python that runs this; `--pure-python PATH` puts
another build beside it.  A figure is the median of the rounds; within a round the sides take turns
scenario by scenario, so that a change of the machine's mood meets all of them.  See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import rabbitmq
import sides


@dataclass(frozen=True)
class Scenario:
    """A load, given by the generator's flags, and the figure that counts."""

    name: str
    title: str
    flags: list[str]
    figure: str = "delivered"
    unit: str = "msg/s"
    target: float = 0.0  # the ratio that is to be reached, 0 where none is set
    extra: list[str] = field(default_factory=list)


ONE: Final = ["-P", "1", "-C", "1"]
CONFIRMED: Final = [*ONE, "-c", "1000", "-q", "1000", "-a", "100"]

SCENARIOS: Final = [
    Scenario("auto-ack", "16 B, auto-ack", [*ONE, "-s", "16"], target=12),
    Scenario("confirms", "16 B, confirms 1000, acks 100", [*CONFIRMED, "-s", "16"], target=15),
    Scenario(
        "durable", "16 B, durable, persistent, confirmed", [*CONFIRMED, "-d", "-s", "16"], target=8
    ),
    Scenario("1k", "1 KiB, auto-ack", [*ONE, "-s", "1024"]),
    Scenario(
        "latency", "latency at 10,000 msg/s, p50", [*ONE, "-s", "16", "-l", "-r", "10000"],
        figure="p50", unit="µs", extra=["p99", "p999"],
    ),
]  # fmt: skip

Figures = dict[str, list[float]]


def measure(
    all_sides: list[sides.Side], scenarios: list[Scenario], options: argparse.Namespace
) -> dict[str, dict[str, Figures]]:
    """Return scenario → side → figure → one value for each round."""
    _, generator = sides.cores(options.cpus)
    found: dict[str, dict[str, Figures]] = {}
    for round_ in range(options.rounds):
        for scenario in scenarios:
            for side in all_sides:
                say(f"round {round_ + 1}/{options.rounds}: {scenario.title}: {side.name}")
                queue = f"bench-{scenario.name}-{round_}"
                figures = found.setdefault(scenario.name, {}).setdefault(side.name, {})
                try:
                    got = sides.generate(side, scenario.flags, queue, options.seconds, generator)
                except sides.GeneratorError as error:
                    say(f"  failed: {error}")
                    continue
                for name, value in got.items():
                    figures.setdefault(name, []).append(value)
    return found


def say(text: str) -> None:
    """Show progress on standard error: standard output is the result's."""
    print(text, file=sys.stderr, flush=True)


def median(figures: Figures, name: str) -> float | None:
    """Return the median of a figure, None where it was not measured."""
    values = figures.get(name)
    return statistics.median(values) if values else None


def ratio(scenario: Scenario, found: dict[str, Figures], side: str, other: str) -> float | None:
    """Return how many times better `side` is than `other`."""
    ours, theirs = (median(found.get(name, {}), scenario.figure) for name in (side, other))
    if not ours or not theirs:
        return None
    return theirs / ours if scenario.unit == "µs" else ours / theirs


def report(
    found: dict[str, dict[str, Figures]], names: list[str], scenarios: list[Scenario]
) -> list[dict[str, Any]]:
    """Return a row for each scenario: medians for each side and ratios to the last."""
    rows = []
    for scenario in scenarios:
        by_side = found.get(scenario.name, {})
        wanted = [scenario.figure, *scenario.extra]
        rows.append(
            {
                "scenario": scenario.name,
                "title": scenario.title,
                "unit": scenario.unit,
                "flags": scenario.flags,
                "target": scenario.target,
                "median": {
                    name: {f: median(by_side.get(name, {}), f) for f in wanted} for name in names
                },
                "ratio": {n: ratio(scenario, by_side, n, names[-1]) for n in names[:-1]},
                "rounds": by_side,
            }
        )
    return rows


def table(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Return the rows as a Markdown table."""
    head = ["scenario", *names, *[f"{name} : {names[-1]}" for name in names[:-1]], "target"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [f"{row['title']} ({row['unit']})"]
        for name in names:
            values = [v for v in row["median"][name].values() if v is not None]
            cells.append(" / ".join(f"{value:,.0f}" for value in values) or "-")
        for name in names[:-1]:
            value = row["ratio"][name]
            cells.append(f"{value:.1f}" if value else "-")
        cells.append(f"≥ {row['target']:.0f}" if row["target"] else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure")
    parser.add_argument("--only", action="append", choices=[s.name for s in SCENARIOS])
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--cpus", choices=["one", "all"], default="all", help="a broker's cores")
    parser.add_argument("--pure-python", metavar="PATH", help="a Python with another build")
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=temporary, help="where data lies: a real disk")
    return parser.parse_args()


def start_all(
    stack: contextlib.ExitStack, options: argparse.Namespace
) -> tuple[list[sides.Side], list[str]]:
    """Start the brokers; return them, the one to compare with last, and their versions."""
    broker, _ = sides.cores(options.cpus)
    started, versions = [], []
    pythons = [("Leveret", sys.executable), ("Leveret pure", options.pure_python)]
    for name, python in pythons:
        if python is None:
            continue
        if not sides.has_broker(python):
            say(f"{name}: no broker is installed for {python}")
            continue
        versions.append(f"{name}: {sides.version(python)}")
        started.append(stack.enter_context(sides.leveret(python, name, options.dir, broker)))
    if rabbitmq.installed() and not options.no_rabbitmq:
        say("starting RabbitMQ")
        started.append(stack.enter_context(sides.rabbit(options.dir, broker)))
    return started, versions


def main() -> int:
    """Measure and print."""
    options = arguments()
    sides.build_generator()
    scenarios = [s for s in SCENARIOS if not options.only or s.name in options.only]
    with contextlib.ExitStack() as stack:
        started, versions = start_all(stack, options)
        found = measure(started, scenarios, options)
    if not started:
        say("there is no broker to measure")
        return 1
    filesystem = sides.filesystem(options.dir)
    if filesystem == "tmpfs":
        say(f"{options.dir} is on tmpfs, where a sync costs nothing: durable figures mean nothing")
    names = [side.name for side in started]
    rows = report(found, names, scenarios)
    about = sides.machine() | {
        "filesystem": filesystem,
        "broker cores": options.cpus,
        "seconds": str(options.seconds),
        "rounds": str(options.rounds),
    }
    if options.json:
        print(json.dumps({"about": about, "versions": versions, "scenarios": rows}, indent=2))
    else:
        print("\n".join(versions))
        print(", ".join(f"{key} {value}" for key, value in about.items()), end="\n\n")
        print(table(rows, names))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
