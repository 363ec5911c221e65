"""Leveret and RabbitMQ side by side: one run, the same load, a table of figures and ratios.

    .venv/bin/python bench/side_by_side.py [--seconds 5] [--rounds 3] [--only durable] [--json]

The broker measured is the one installed for the Python that runs this; `--pure-python PATH` puts
another build beside it, and `--rabbitmq both` the RabbitMQ of Debian's next release.  A figure is
the median of the rounds; within a round the sides take turns scenario by scenario, so that a change
of the machine's mood meets all of them.

    .venv/bin/python bench/side_by_side.py --other PATH --rounds 7 [--instructions 20000]

compares with any other build, of a checkout or a virtual environment, in place of RabbitMQ: the
ratio of each round, and the instructions that both execute for a message.  See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import builds
import instructions
import rabbitmq
import rabbitmq_next
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
    perf: list[str] = field(default_factory=list)  # `leveret perf`'s flags for the same load
    extra: list[str] = field(default_factory=list)
    synced: bool = False  # whether records per sync are worth a column
    counted: float = 0  # the share of `--instructions` that are counted here, 0 for none


ONE: Final = ["-P", "1", "-C", "1"]
CONFIRMED: Final = [*ONE, "-c", "1000", "-q", "1000", "-a", "100"]
PERF_CONFIRMED: Final = ["-c", "1000", "-q", "1000", "-A", "100"]

SCENARIOS: Final = [
    Scenario("auto-ack", "16 B, auto-ack", [*ONE, "-s", "16"], target=12, perf=["-s", "16", "-a"]),
    Scenario(
        "confirms", "16 B, confirms 1000, acks 100", [*CONFIRMED, "-s", "16"], target=15,
        perf=[*PERF_CONFIRMED, "-s", "16"], counted=1,
    ),
    Scenario(
        "durable", "16 B, durable, persistent, confirmed", [*CONFIRMED, "-d", "-s", "16"],
        target=10, perf=[*PERF_CONFIRMED, "-s", "16", "-f", "persistent"], synced=True,
        counted=1,
    ),
    Scenario(
        "durable-16", "the same, 16 publishers on 16 queues", ["-P", "16", "-C", "16", "-M", "16",
        *CONFIRMED[4:], "-d", "-s", "16"], target=10, synced=True, counted=2,
    ),
    Scenario(
        "durable-wait", "durable, each message waits for its confirm, p50",
        [*ONE, "-c", "1", "-w", "-q", "1000", "-a", "100", "-d", "-s", "16"],
        figure="p50", unit="µs", extra=["p99", "p999"], target=1 / 0.6, synced=True,
        counted=0.1,
    ),
    Scenario(
        "fan-out", "16 B, fanout to 10 queues, auto-ack", ["-P", "1", "-C", "10", "-F", "10",
        "-s", "16"], target=8,
    ),
    Scenario(
        "topic", "16 B, topic with 1,000 wildcard bindings", [*ONE, "-T", "1000", "-s", "16"],
        target=5, counted=1,
    ),
    Scenario(
        "1k", "1 KiB, auto-ack", [*ONE, "-s", "1024"], perf=["-s", "1024", "-a"], counted=1,
    ),
    Scenario(
        "latency", "latency at 10,000 msg/s, p50", [*ONE, "-s", "16", "-l", "-r", "10000"],
        figure="p50", unit="µs", extra=["p99", "p999"],
        perf=["-s", "16", "-a", "-l", "-r", "10000"],
    ),
]  # fmt: skip

#: Which RabbitMQ each choice runs; ratios are to the last one.
RABBITS: Final[dict[str, list[type[rabbitmq.RabbitMQ]]]] = {
    "installed": [rabbitmq.RabbitMQ],
    "next": [rabbitmq_next.NextRabbitMQ],
    "both": [rabbitmq_next.NextRabbitMQ, rabbitmq.RabbitMQ],
}

#: The columns that have a meaning of their own.
LEVERET: Final = "Leveret"
OTHER: Final = "the other"
PERF: Final = "Leveret by its own `leveret perf`"

#: The figure that tells what a message costs the broker, in microseconds of its threads.  It varies
#: less than a rate where other work keeps the machine busy.
PROCESSOR: Final = "processor"

Figures = dict[str, list[float]]
Load = Callable[[Scenario, str, float], dict[str, float]]


def loads_of(started: list[sides.Side], generator: set[int]) -> dict[str, Load]:
    """Return what is run for each scenario, by the name of its column."""

    def by_generator(side: sides.Side) -> Load:
        def load(scenario: Scenario, queue: str, seconds: float) -> dict[str, float]:
            before = sides.journal_counts(side) if scenario.synced else {}
            spent = sides.processor_seconds(side) if compares else 0
            figures = sides.generate(side, scenario.flags, queue, seconds, generator)
            if compares:
                messages = figures.get("delivered", 0) * seconds
                spent = sides.processor_seconds(side) - spent
                figures[PROCESSOR] = spent * 1_000_000 / messages if messages else 0
            if not before:
                return figures
            after = sides.journal_counts(side)
            return figures | {name: after[name] - before[name] for name in after}

        return load

    compares = any(side.name == OTHER for side in started)
    loads = {side.name: by_generator(side) for side in started}
    ours = started[0]
    if ours.name == LEVERET and sides.has_perf() and not compares:
        loads[PERF] = lambda scenario, queue, seconds: (
            sides.perf(ours, scenario.perf, queue, seconds, generator) if scenario.perf else {}
        )
    return loads


def measure(
    loads: dict[str, Load], scenarios: list[Scenario], options: argparse.Namespace
) -> tuple[dict[str, dict[str, Figures]], list[str]]:
    """Return scenario → column → figure → one value for each round; and what failed."""
    found: dict[str, dict[str, Figures]] = {}
    failures: list[str] = []
    for round_ in range(options.rounds):
        # Who begins changes from round to round: it finds the machine as the last load left it.
        turns = [*loads.items()][:: -1 if round_ % 2 else 1]
        for scenario in scenarios:
            for name, load in turns:
                say(f"round {round_ + 1}/{options.rounds}: {scenario.title}: {name}")
                # A queue of its own: what a run left in sockets cannot come into the next.
                queue = f"bench-{secrets.token_hex(4)}"
                figures = found.setdefault(scenario.name, {}).setdefault(name, {})
                try:
                    got = load(scenario, queue, options.seconds)
                except sides.GeneratorError as error:
                    failures.append(f"round {round_ + 1}: {scenario.title}: {name}: {error}")
                    continue
                for figure, value in got.items():
                    figures.setdefault(figure, []).append(value)
    return found, failures


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
    found: dict[str, dict[str, Figures]],
    names: list[str],
    columns: list[str],
    scenarios: list[Scenario],
) -> list[dict[str, Any]]:
    """Return a row for each scenario: medians of the columns, ratios of sides to the last."""
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
                    name: {f: median(by_side.get(name, {}), f) for f in wanted} for name in columns
                },
                "ratio": {n: ratio(scenario, by_side, n, names[-1]) for n in names[:-1]},
                "rounds": by_side,
            }
        )
    return rows


def syncs(rows: list[dict[str, Any]]) -> str:
    """Return what the syncs of Leveret carried in the scenarios that sync."""
    lines = []
    for row in rows:
        figures: Figures = row["rounds"].get(LEVERET, {})
        count, records, size = (
            sum(figures.get(name, []))
            for name in ("io_sync_count", "records_written", "io_write_bytes")
        )
        if count:
            lines.append(
                f"{row['title']}: {records / count:,.0f} records and {size / count:,.0f} bytes "
                f"per sync ({count:,.0f} syncs)"
            )
    return "\n".join(lines)


#: What a reader of the table must know of its durable rows.
SYNC_NOTE: Final = (
    "Both sync before they confirm: Leveret the journal of the node (sync = always), once\n"
    "for all that has gathered; RabbitMQ 3.10.8 that of the queue (strace shows the fsync).\n"
    "Classic queues of RabbitMQ 4.3.6 confirm without a sync, its quorum queues with one."
)


def table(rows: list[dict[str, Any]], names: list[str], columns: list[str]) -> str:
    """Return the rows as a Markdown table."""
    head = ["scenario", *columns, *[f"{name} : {names[-1]}" for name in names[:-1]], "target"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [f"{row['title']} ({row['unit']})"]
        for name in columns:
            values = [v for v in row["median"][name].values() if v is not None]
            cells.append(" / ".join(f"{value:,.0f}" for value in values) or "-")
        for name in names[:-1]:
            value = row["ratio"][name]
            cells.append(f"{value:.1f}" if value else "-")
        cells.append(f"≥ {row['target']:.3g}" if row["target"] else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each run")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each figure")
    parser.add_argument("--only", action="append", choices=[s.name for s in SCENARIOS])
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--cpus", choices=["one", "all"], default="all", help="a broker's cores")
    parser.add_argument("--pure-python", metavar="PATH", help="a Python with another build")
    parser.add_argument("--no-rabbitmq", action="store_true", help="leave RabbitMQ out")
    parser.add_argument(
        "--rabbitmq",
        choices=list(RABBITS),
        default="installed",
        help="which RabbitMQ: Debian's, that of Debian's next release (downloaded), or both",
    )
    parser.add_argument(
        "--other",
        metavar="PATH",
        type=python_path,
        help="compare with this build only: its Python, or its checkout or virtual environment",
    )
    parser.add_argument(
        "--instructions",
        metavar="N",
        type=int,
        default=20_000,
        help="with --other: messages by which instructions are counted; 0 counts none",
    )
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=temporary, help="where data lies: a real disk")
    options = parser.parse_args(given)
    if options.other and options.pure_python:
        parser.error("--other compares two builds, and --pure-python names a third one")
    return options


def python_path(text: str) -> str:
    """Return the Python of a build.  Raises: argparse.ArgumentTypeError."""
    try:
        return builds.python_of(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def start_all(
    stack: contextlib.ExitStack, options: argparse.Namespace
) -> tuple[list[sides.Side], list[str]]:
    """Start the brokers; return them, the one to compare with last, and their versions."""
    broker, _ = sides.cores(options.cpus)
    started, versions = [], []
    pythons = [
        (LEVERET, sys.executable),
        ("Leveret pure", options.pure_python),
        (OTHER, options.other),
    ]
    for name, python in pythons:
        if python is None:
            continue
        if not sides.has_broker(python):
            say(f"{name}: no broker is installed for {python}")
            continue
        where = f" at {python}" if name == OTHER else ""
        versions.append(f"{name}: {sides.version(python)}{where}")
        started.append(stack.enter_context(sides.leveret(python, name, options.dir, broker)))
    for kind in [] if options.no_rabbitmq or options.other else RABBITS[options.rabbitmq]:
        if kind is rabbitmq.RabbitMQ and not rabbitmq.installed():
            continue
        say("starting RabbitMQ")
        try:
            started.append(stack.enter_context(sides.rabbit(options.dir, broker, kind)))
        except rabbitmq.RabbitMQError as error:
            say(f"a RabbitMQ is left out: {error}")
    return started, versions


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the figure that counts, and the ratios of the rounds, to the rows of two builds."""
    for row, scenario in ((row, by_name(row["scenario"])) for row in rows):
        row["figures"] = {name: row["median"][name][scenario.figure] for name in row["median"]}
        ours, theirs = (
            row["rounds"].get(name, {}).get(scenario.figure, []) for name in (LEVERET, OTHER)
        )
        row["compared"] = builds.compare(ours, theirs, less_is_better=scenario.unit == "µs")
    return rows


def costs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each scenario of what a message cost the processor in both builds."""
    made = []
    for row in rows:
        found = {name: row["rounds"].get(name, {}).get(PROCESSOR, []) for name in (LEVERET, OTHER)}
        made.append(
            {
                "scenario": row["scenario"],
                "title": row["title"],
                "unit": "processor ns/msg",
                "figures": {
                    n: statistics.median(f) * 1000 if f else None for n, f in found.items()
                },
                # An amount, not a speed: above 1 this build takes more than the other.
                "compared": builds.compare(found[LEVERET], found[OTHER], less_is_better=False),
            }
        )
    return made


def by_name(name: str) -> Scenario:
    """Return a scenario by its name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def counted(
    scenarios: list[Scenario], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row of instructions per message for each scenario that counts; and what failed."""
    wanted = [scenario for scenario in scenarios if scenario.counted]
    if not wanted or not options.instructions:
        return [], []
    try:
        how = instructions.method()
    except instructions.CountError as error:
        return [], [f"instructions: {error}"]
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    for scenario in wanted:
        found: dict[str, list[float]] = {}
        for name, python in ((LEVERET, sys.executable), (OTHER, options.other)):
            say(f"instructions by {how}: {scenario.title}: {name}")
            messages = max(int(options.instructions * scenario.counted), 1)
            load = (scenario.flags, messages, options.dir, how)
            try:
                found[name] = instructions.count(python, *load)
            except (instructions.CountError, sides.GeneratorError) as error:
                failures.append(f"instructions: {scenario.title}: {name}: {error}")
                found[name] = []
        rows.append(
            {
                "scenario": scenario.name,
                "title": scenario.title,
                "unit": f"instructions/msg by {how}",
                "figures": {n: statistics.median(f) if f else None for n, f in found.items()},
                "rounds": found,
                # An amount, not a speed: above 1 this build executes more than the other.
                "compared": builds.compare(found[LEVERET], found[OTHER], less_is_better=False),
            }
        )
    return rows, failures


def main() -> int:
    """Measure and print."""
    options = arguments()
    sides.build_generator()
    scenarios = [s for s in SCENARIOS if not options.only or s.name in options.only]
    _, generator = sides.cores(options.cpus)
    with contextlib.ExitStack() as stack:
        started, versions = start_all(stack, options)
        if not started:
            say("there is no broker to measure")
            return 1
        loads = loads_of(started, generator)
        found, failures = measure(loads, scenarios, options)
    filesystem = sides.filesystem(options.dir)
    if filesystem == "tmpfs":
        say(f"{options.dir} is on tmpfs, where a sync costs nothing: durable figures mean nothing")
    names = [side.name for side in started]
    rows = report(found, names, list(loads), scenarios)
    about = sides.machine() | {
        "filesystem": filesystem,
        "broker cores": options.cpus,
        "seconds": str(options.seconds),
        "rounds": str(options.rounds),
    }
    result = {"about": about, "versions": versions, "scenarios": rows, "failures": failures}
    if options.other:
        result["instructions"], failed = counted(scenarios, options)
        failures += failed
        compared(rows)
        result["costs"] = costs(rows)
    if options.json:
        print(json.dumps(result, indent=2, default=builds.as_json))
    else:
        print_tables(result, names, list(loads))
    for failure in failures:
        say(f"failed: {failure}")
    return 1 if failures else 0


def print_tables(result: dict[str, Any], names: list[str], columns: list[str]) -> None:
    """Print what was measured as Markdown."""
    rows = result["scenarios"]
    print("\n".join(result["versions"]))
    print(", ".join(f"{key} {value}" for key, value in result["about"].items()), end="\n\n")
    if "instructions" in result:
        print(builds.table(rows, names))
        print(f"\n{builds.table(result['costs'], names)}")
        if result["instructions"]:
            print(f"\n{builds.table(result['instructions'], names)}")
        return
    print(table(rows, names, columns))
    if records := syncs(rows):
        print(f"\n{records}\n\n{SYNC_NOTE}")


if __name__ == "__main__":
    raise SystemExit(main())
