"""Leveret beside two RabbitMQs and a relay in C: one run, one page with plots, and its JSON.

    .venv/bin/python bench/page.py [--seconds 3] [--rounds 7] [--only durable] [--short]
    .venv/bin/python bench/page.py --table

measures the scenarios, cold starts, the growth of costs and what Leveret alone can do, and writes
`index.html` and `results.json` to build/bench.  `--table` prints the tables of the last run as
Markdown.  The broker measured is the one installed for the Python that runs this; `--pure-python
PATH` puts another build beside it.  See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import charts
import growth
import psutil
import rabbitmq
import rabbitmq_next
import sides
from scenarios import SCENARIOS, Figures, Load, Scenario, by_name, chosen, measure, say

BENCH: Final = Path(__file__).resolve().parent
OUT: Final = BENCH.parent / "build" / "bench"

LEVERET: Final = "Leveret"
PURE: Final = "Leveret, pure"
PERF: Final = "by leveret perf"

#: A million queues take more memory than definitions may have by default on a small machine.
SETTINGS: Final = {"definition_bytes_max": "8GiB"}

START: Final = "start"
START_FIGURES: Final = {
    "ready_s": "s until ready",
    "confirm_s": "s until the first confirm",
    "rss_mb": "MB resident then",
}

#: The programs that measure Leveret in other ways, and print JSON.
PROGRAMS: Final = {
    "large": [],
    "pressure": [],
    "stream": ["--messages", "10000000"],
    "spark": [],
    "tls": [],
    "watched": [],
}

#: `--short`: every broker once, to see that it works.
SHORT_COUNTS: Final = (1000,)


# -- measuring -------------------------------------------------------------------------------------


def starts_of(options: argparse.Namespace, left_out: list[str]) -> dict[str, growth.Start]:
    """Return how each broker is started; add those that cannot be to `left_out`."""
    cpus, _ = sides.cores(options.cpus)
    starts: dict[str, growth.Start] = {}

    def add(name: str, python: str) -> None:
        starts[name] = lambda: sides.leveret(python, name, options.dir, cpus, settings=SETTINGS)

    def add_rabbit(kind: type[rabbitmq.RabbitMQ]) -> None:
        name = f"RabbitMQ {kind(options.dir).version}"
        starts[name] = lambda: sides.rabbit(options.dir, cpus, kind)

    add(LEVERET, sys.executable)
    if options.pure_python:
        add(PURE, options.pure_python)
    for kind in () if options.no_rabbitmq else (rabbitmq_next.NextRabbitMQ, rabbitmq.RabbitMQ):
        if kind is rabbitmq.RabbitMQ and not rabbitmq.installed():
            left_out.append("Debian's RabbitMQ: apt-get install rabbitmq-server")
            continue
        try:
            add_rabbit(kind)
        except rabbitmq.RabbitMQError as error:
            left_out.append(f"the RabbitMQ of Debian's next release: {error}")
    return starts


def load_of(side: sides.Side, cpus: set[int]) -> Load:
    """Return what puts the scenarios on a side by the generator in C."""

    def load(scenario: Scenario, queue: str, seconds: float) -> Mapping[str, float]:
        if side.broker is None and not scenario.relayed:
            return {}
        before = sides.journal_counts(side)
        figures = sides.generate(side, scenario.flags, queue, seconds, cpus)
        after = sides.journal_counts(side)
        synced = {name: after[name] - before[name] for name in before}
        if "-d" in scenario.flags and synced.get("io_sync_count"):
            figures["records_per_sync"] = synced["records_written"] / synced["io_sync_count"]
        return figures

    return load


def perf_of(side: sides.Side, cpus: set[int]) -> Load:
    """Return what puts the scenarios on a side by `leveret perf`, as far as it can."""
    return lambda scenario, queue, seconds: (
        sides.perf(side, scenario.perf, queue, seconds, cpus) if scenario.perf else {}
    )


def run_scenarios(
    starts: dict[str, growth.Start], wanted: Sequence[Scenario], options: argparse.Namespace
) -> tuple[dict[str, dict[str, Figures]], list[str]]:
    """Run all brokers for the whole time, and the scenarios in turns."""
    broker, generator = sides.cores(options.cpus)
    with contextlib.ExitStack() as stack:
        loads = {}
        for name, start in starts.items():
            side = stack.enter_context(start())
            loads[name] = load_of(side, generator)
            if name == LEVERET:
                loads[PERF] = perf_of(side, generator)
        relay = stack.enter_context(sides.relay(broker))
        loads[relay.name] = load_of(relay, generator)
        return measure(loads, wanted, options.rounds, options.seconds)


def run_starts(starts: dict[str, growth.Start], rounds: int) -> dict[str, Figures]:
    """Start each broker on an empty directory, up to the confirm of a persistent message."""
    found: dict[str, Figures] = {name: {} for name in starts}
    for round_ in range(rounds):
        for name, start in starts.items():
            say(f"start {round_ + 1}/{rounds}: {name}")
            began = time.monotonic()
            with start() as side:
                figures = {"ready_s": time.monotonic() - began}
                sides.first_confirm(side.port)
                figures["confirm_s"] = time.monotonic() - began
                # RabbitMQ has processes beside the one that serves.
                children = psutil.Process().children(recursive=True)
                figures["rss_mb"] = sum(sides.resident(one.pid) for one in children) / 1e6
            for figure, value in figures.items():
                found[name].setdefault(figure, []).append(value)
    return found


def run_program(name: str) -> tuple[Any, str]:
    """Run another bench; return its JSON, or what it said instead."""
    say(f"bench/{name}.py")
    command = [sys.executable, str(BENCH / f"{name}.py"), *PROGRAMS[name], "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        # The exit code says only whether the targets were met.
        return json.loads(done.stdout), ""
    except ValueError:
        return None, f"bench/{name}.py: exit code {done.returncode}, without JSON"


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results after each part, each with those before it."""
    only = options.only
    left_out: list[str] = []
    failures: list[str] = []
    starts = starts_of(options, left_out)
    result: dict[str, Any] = {
        "about": sides.machine()
        | {
            "date": time.strftime("%Y-%m-%d"),
            "filesystem": sides.filesystem(options.dir),
            "broker cores": options.cpus,
            "seconds": str(options.seconds),
            "rounds": str(options.rounds),
        },
        "versions": {LEVERET: sides.version(sys.executable), **{n: n for n in starts if " " in n}},
        "scenarios": {},
        "starts": {},
        "growth": {},
        "programs": {},
        "left_out": left_out,
        "failures": failures,
    }
    if wanted := chosen(only):
        found, failed = run_scenarios(starts, wanted, options)
        failures += failed
        result["scenarios"] = {
            name: described(by_name(name)) | {"sides": summaries(of)} for name, of in found.items()
        }
        yield result
    if only is None or START in only:
        result["starts"] = summaries(run_starts(starts, options.rounds))
        yield result
    # Plain Python's part of the costs is known from the scenarios.
    grown = {name: start for name, start in starts.items() if name != PURE}
    for part in (one for one in growth.GROWTHS if only is None or one.name in only):
        found_part, missing = growth.measure(
            grown, part, options.counts or part.counts, options.seconds, options.limit
        )
        result["growth"][part.name] = found_part
        left_out += missing
        yield result
    for name in PROGRAMS:
        if (only is None and not options.short) or (only and name in only):
            result["programs"][name], failure = run_program(name)
            failures += [failure] if failure else []
            yield result


def described(scenario: Scenario) -> dict[str, Any]:
    """Return what the JSON tells about a scenario."""
    names = ("title", "unit", "figure", "flags", "target", "latencies")
    return {name: getattr(scenario, name) for name in names}


def summaries(found: dict[str, Figures]) -> dict[str, dict[str, Any]]:
    """Return side → figure → median, least, greatest, and all rounds."""
    return {
        side: {
            figure: {
                "median": statistics.median(rounds),
                "least": min(rounds),
                "greatest": max(rounds),
                "rounds": rounds,
            }
            for figure, rounds in figures.items()
        }
        for side, figures in found.items()
    }


# -- tables ----------------------------------------------------------------------------------------


def short(value: float) -> str:
    """Return a figure with three digits at least that count."""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"


def spread(summary: Mapping[str, Any]) -> str:
    """Return a median, and by how much the rounds lie around it."""
    half = (summary["greatest"] - summary["least"]) / 2 / (summary["median"] or 1)
    # Spaces that do not break a line.
    return f"{short(summary['median'])}\u00a0±{100 * half:.0f}\u00a0%"


def cell(row: Mapping[str, Any], side: str) -> str:
    """Return what a side reached in a scenario."""
    figures = row["sides"].get(side, {})
    if row["figure"] not in figures:
        return ""
    written = spread(figures[row["figure"]])
    if row["latencies"] and "p50" in figures:
        times = " / ".join(short(figures[name]["median"]) for name in ("p50", "p99", "p999"))
        return times if row["figure"] == "p50" else f"{written}; {times} µs"
    return written


def ratio(row: Mapping[str, Any], other: str) -> float | None:
    """Return how many times better Leveret is than another side in a scenario."""
    ours, theirs = (
        row["sides"].get(side, {}).get(row["figure"], {}).get("median") for side in (LEVERET, other)
    )
    if not ours or not theirs:
        return None
    return float(theirs / ours if row["unit"] == "µs" else ours / theirs)


def scenario_table(found: Mapping[str, Any]) -> charts.Table:
    """Return a row for each scenario: the sides, and Leveret's ratio to those that are not it."""
    names = list(dict.fromkeys(name for row in found.values() for name in row["sides"]))
    others = [name for name in names if name not in (LEVERET, PURE, PERF)]
    head = [
        "scenario",
        *names,
        *(f"{LEVERET} : {name}" for name in others),
        "target",
        "records per sync",
    ]
    rows = [head]
    for row in found.values():
        unit = "µs" if row["figure"] == "p50" else row["unit"]
        what = "p50 / p99 / p99.9, " if row["figure"] == "p50" else ""
        ratios = (ratio(row, name) for name in others)
        records = row["sides"].get(LEVERET, {}).get("records_per_sync")
        rows.append(
            [
                f"{row['title']} ({what}{unit})",
                *(cell(row, name) for name in names),
                *("" if one is None else f"{one:.3g}" for one in ratios),
                f"≥ {row['target']:.3g}" if row["target"] else "",
                short(records["median"]) if records else "",
            ]
        )
    return charts.Table(rows)


def start_table(found: Mapping[str, Any]) -> charts.Table:
    """Return a row for each broker that was started."""
    rows = [["cold start", *START_FIGURES.values()]]
    for name, figures in found.items():
        rows.append([name, *(spread(figures[figure]) for figure in START_FIGURES)])
    return charts.Table(rows)


def growth_table(part: growth.Growth, found: Mapping[str, Any]) -> charts.Table:
    """Return a row for each figure and side, a column for each number of things."""
    counts = sorted({int(count) for points in found.values() for count in points})
    rows = [[part.title, "", *(f"{count:,}" for count in counts)]]
    for figure, title in part.figures.items():
        for name, points in found.items():
            values = [points.get(str(count), {}).get(figure) for count in counts]
            if any(value is not None for value in values):
                cells = ("" if value is None else short(value) for value in values)
                rows.append([title, name, *cells])
    return charts.Table(rows)


def program_table(name: str, found: object) -> charts.Table:
    """Return a row for each figure of another bench."""
    return charts.Table([[f"bench/{name}.py", "figure"], *flat("", found)])


def flat(name: str, value: object) -> Iterator[list[str]]:
    """Yield the name and the text of every figure in JSON; lists of numbers by their medians."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name} {key}".strip(), inner)
    elif isinstance(value, list) and value and all(isinstance(n, int | float) for n in value):
        yield [f"{name} (median of {len(value)})", short(statistics.median(value))]
    elif isinstance(value, int | float):
        yield [name, short(value)]
    else:
        yield [name, str(value)]


Section = tuple[str, Sequence[charts.Table], Sequence[str]]


def sections(result: Mapping[str, Any], colours: charts.Colours) -> Iterator[Section]:
    """Yield the title, the tables and the plots of each part that was measured."""
    if found := result["scenarios"]:
        plots = []
        for row in found.values():
            rounds = {
                name: figures[row["figure"]]["rounds"]
                for name, figures in row["sides"].items()
                if row["figure"] in figures
            }
            unit = "p50, µs" if row["figure"] == "p50" else row["unit"]
            plots.append(charts.bars(f"{row['title']} ({unit})", rounds, colours))
        yield "Scenarios", [scenario_table(found)], plots
    if result["starts"]:
        yield "Cold starts", [start_table(result["starts"])], []
    for part in (one for one in growth.GROWTHS if result["growth"].get(one.name)):
        found = result["growth"][part.name]
        plots = [
            charts.curves(
                title,
                {
                    name: [(int(n), of[figure]) for n, of in points.items() if figure in of]
                    for name, points in found.items()
                },
                colours,
            )
            for figure, title in part.figures.items()
        ]
        yield part.title[0].upper() + part.title[1:], [growth_table(part, found)], plots
    if programs := result["programs"]:
        yield "Leveret alone", [program_table(n, of) for n, of in programs.items() if of], []


def about(result: Mapping[str, Any]) -> str:
    """Return what was measured where, and what is missing."""
    lines = [
        ", ".join(result["versions"].values()),
        ", ".join(f"{name} {value}" for name, value in result["about"].items()),
        *(f"left out: {text}" for text in result["left_out"]),
        *(f"failed: {text}" for text in result["failures"]),
    ]
    return "\n".join(lines)


def markdown(result: Mapping[str, Any]) -> str:
    """Return all tables as Markdown."""
    parts = [about(result)]
    for title, tables, _ in sections(result, charts.Colours()):
        parts += [f"## {title}", *(table.markdown() for table in tables)]
    return "\n\n".join(parts)


def html(result: Mapping[str, Any]) -> str:
    """Return the page."""
    colours = charts.Colours()
    parts = [charts.paragraph(about(result))]
    names = dict.fromkeys(n for row in result["scenarios"].values() for n in row["sides"])
    for points in result["growth"].values():
        names |= dict.fromkeys(points)
    parts.append(charts.legend(names, colours))
    for title, tables, plots in sections(result, colours):
        parts.append(charts.section(title, [table.html() for table in tables], plots))
    return charts.page("Leveret's benchmarks", parts)


# -- the command -----------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options."""
    names = [*(s.name for s in SCENARIOS), START, *(g.name for g in growth.GROWTHS), *PROGRAMS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each load")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each scenario and start")
    parser.add_argument("--only", action="append", choices=names, metavar="PART", help=str(names))
    parser.add_argument("--short", action="store_true", help="once, a second each, little growth")
    parser.add_argument("--counts", type=_counts, help="numbers that costs grow over: 100,10000")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds that a number of things may take"
    )
    parser.add_argument("--no-rabbitmq", action="store_true", help="measure Leveret alone")
    parser.add_argument("--cpus", choices=["one", "all"], default="all", help="a broker's cores")
    parser.add_argument("--pure-python", metavar="PATH", help="a Python with another build")
    temporary = Path(tempfile.gettempdir())
    parser.add_argument("--dir", type=Path, default=temporary, help="where data lies: a real disk")
    parser.add_argument("--out", type=Path, default=OUT, help="where the page and the JSON go")
    parser.add_argument("--table", action="store_true", help="print the last run's tables only")
    options = parser.parse_args(given)
    if options.short:
        options.seconds, options.rounds, options.counts = 1.0, 1, SHORT_COUNTS
    return options


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def main() -> int:
    """Measure and write, or print what was written."""
    options = arguments()
    results = options.out / "results.json"
    if options.table:
        print(markdown(json.loads(results.read_text())))
        return 0
    sides.build_generator()
    if sides.filesystem(options.dir) == "tmpfs":
        say(f"{options.dir} is on tmpfs, where a sync costs nothing: durable figures mean nothing")
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {}
    for result in run(options):
        # A run takes long: what is measured is kept, whatever comes after it.
        results.write_text(json.dumps(result, indent=1) + "\n")
        (options.out / "index.html").write_text(html(result))
    print(markdown(result))
    say(f"the page: {options.out / 'index.html'}")
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
