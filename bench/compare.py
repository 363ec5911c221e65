"""Leveret beside RabbitMQ: the same loads, in turns, on the same machine; ratios of one run.

    make bench                          all cases
    make bench ARGS="--seconds 10 --rounds 5"

Every broker runs on loopback ports and in directories of its own, with a disk beneath (not in
memory: the durable case waits for syncs).  A figure is the median of its rounds.  It judges
nothing: goals are printed beside the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import load
import rabbitmq

from broker_process import BrokerProcess

ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """One load: the generator's flags, `leveret perf`'s for the same, and the least ratio hoped."""

    name: str
    flags: list[str]
    perf: list[str]
    goal: float | None = None


CONFIRMED: Final = ["-c", "1000", "-a", "100"]
CASES: Final = [
    Case("16 B, auto-ack", ["-s", "16"], ["-s", "16", "-a"], goal=12),
    Case(
        "16 B, confirms 1000, acks 100",
        ["-s", "16", *CONFIRMED],
        ["-s", "16", "-c", "1000", "-A", "100"],
        goal=15,
    ),
    Case(
        "16 B, durable, persistent, confirms 1000, acks 100",
        ["-s", "16", "-d", *CONFIRMED],
        ["-s", "16", "-f", "persistent", "-c", "1000", "-A", "100"],
        goal=8,
    ),
    Case("1 KiB, auto-ack", ["-s", "1024"], ["-s", "1024", "-a"]),
    Case("10,000 msg/s, 16 B: latency", ["-s", "16", "-r", "10000", "-l"], []),
]


@dataclass(frozen=True)
class Broker:
    """A running broker of the comparison."""

    name: str
    port: int


@dataclass(frozen=True)
class Result:
    """The medians of one case on one broker."""

    case: str
    broker: str
    delivered_per_s: float
    p50_us: float | None
    p99_us: float | None


def main() -> None:
    """Start the brokers, measure, print."""
    arguments = parsed()
    load.build()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-", dir=arguments.dir))
    tempfile.tempdir = str(work)  # every broker's files lie on the same disk
    try:
        print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.platform()}")
        measure_start(work / "start")
        with contextlib.ExitStack() as stack:
            brokers = [broker for start in starts(work) for broker in start(stack)]
            results = list(measured(brokers, arguments.seconds, arguments.rounds))
    finally:
        shutil.rmtree(work)
    print_table(results)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")


def parsed() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (5)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (3)")
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="where data lies")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    return parser.parse_args()


def starts(work: Path) -> list[Callable[[contextlib.ExitStack], list[Broker]]]:
    """Return what starts each broker; what is not there is named and left out."""
    pure = ROOT / ".venv-pure" / "bin" / "python"

    def compiled_build(stack: contextlib.ExitStack) -> list[Broker]:
        process = stack.enter_context(BrokerProcess(work / "compiled"))
        return [Broker("leveret", process.port)]

    def pure_build(stack: contextlib.ExitStack) -> list[Broker]:
        if not pure.exists():
            print("no .venv-pure: the pure build is left out")
            return []
        process = stack.enter_context(BrokerProcess(work / "pure", python=str(pure)))
        return [Broker("leveret, pure", process.port)]

    def rabbit(stack: contextlib.ExitStack) -> list[Broker]:
        if not rabbitmq.installed():
            print("no rabbitmq-server (Debian's package): no ratios")
            return []
        process = stack.enter_context(rabbitmq.RabbitMQ())
        print(f"RabbitMQ {process.version}")
        return [Broker("rabbitmq", process.port)]

    return [compiled_build, pure_build, rabbit]


def measured(brokers: list[Broker], seconds: float, rounds: int) -> Iterator[Result]:
    """Yield the medians of each case on each broker; the brokers take turns."""
    for case in CASES:
        runs: dict[str, list[load.Figures]] = {broker.name: [] for broker in brokers}
        for number in range(rounds):
            for broker in brokers:
                show_progress(f"{case.name}: {number + 1}/{rounds} {broker.name}")
                # A queue of its own: what an earlier run left in sockets cannot come into it.
                flags = [*case.flags, "-Q", f"bench-{secrets.token_hex(4)}"]
                runs[broker.name].append(load.run(broker.port, flags, seconds))
        show_progress("")
        for broker in brokers:
            yield result_of(case, broker, runs[broker.name])
        print_perf(case, brokers[0], seconds)


def show_progress(text: str) -> None:
    """Show on a terminal what runs now, in place of what ran before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text:78}\r{text}")
        sys.stderr.flush()


def result_of(case: Case, broker: Broker, runs: list[load.Figures]) -> Result:
    """Return the medians of the runs."""
    p50 = [run.p50_us for run in runs if run.p50_us is not None]
    p99 = [run.p99_us for run in runs if run.p99_us is not None]
    return Result(
        case=case.name,
        broker=broker.name,
        delivered_per_s=statistics.median(run.delivered for run in runs),
        p50_us=statistics.median(p50) if p50 else None,
        p99_us=statistics.median(p99) if p99 else None,
    )


def print_perf(case: Case, broker: Broker, seconds: float) -> None:
    """Print what `leveret perf` measures for the same load on the same broker."""
    if not case.perf:
        return
    uri = f"amqp://guest:guest@127.0.0.1:{broker.port}/%2F"
    flags = ["-h", uri, "-x", "1", "-y", "1", "-z", str(int(seconds)), *case.perf]
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "perf", *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    print(f"leveret perf, {case.name}: {said[-1] if said else 'says nothing'}")


def measure_start(data_dir: Path) -> None:
    """Print the time from a process's start to its first confirm, and its memory when idle."""
    confirmed_s, rss_mib = [], []
    for number in range(3):
        started = time.perf_counter()
        with BrokerProcess(data_dir / str(number)) as process:
            load.run(process.port, ["-P", "1", "-C", "0", "-n", "1", "-c", "1", "-d"], 1)
            confirmed_s.append(time.perf_counter() - started)
            rss_mib.append(rss_bytes(process.pid) / 2**20)
    print(
        f"leveret: {statistics.median(confirmed_s):.2f} s from start to first confirm (goal 0.7), "
        f"{statistics.median(rss_mib):.0f} MiB when idle (goal 70 MB)"
    )


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def print_table(results: list[Result]) -> None:
    """Print the figures and, where RabbitMQ ran, the ratios to it."""
    goals = {case.name: case.goal for case in CASES}
    rabbit = {r.case: r for r in results if r.broker == "rabbitmq"}
    print(f"\n{'case':52}{'broker':16}{'msg/s':>12}{'ratio':>8}{'goal':>6}  latency p50/p99")
    for result in results:
        reference = rabbit.get(result.case)
        ratio = goal = ""
        if reference is not None and reference is not result and result.p50_us is None:
            ratio = f"{result.delivered_per_s / reference.delivered_per_s:.1f}x"
        if result.broker == "leveret" and goals[result.case]:
            goal = f"{goals[result.case]:.0f}x"
        latency = f"{result.p50_us:.0f}/{result.p99_us:.0f} us" if result.p50_us else ""
        print(
            f"{result.case:52}{result.broker:16}{result.delivered_per_s:>12,.0f}"
            f"{ratio:>8}{goal:>6}  {latency}"
        )


if __name__ == "__main__":
    main()
