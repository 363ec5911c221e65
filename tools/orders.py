"""Run each test file alone and all tests in random orders, and say what fails only there.

    orders.py [--orders N] [--seed S]… [--jobs N] [--no-alone] [PATH]… [-- PYTEST ARGUMENT…]

A test that needs what another leaves behind passes for as long as that one runs before it, in the
same process.  Files are run one by one, each in a process of its own; then all of them once for
each seed, shuffled by pytest-random-order: the files, and the tests within each.  A seed gives the
same order again; which of several workers takes a file is chance.

It prints what failed, the command that runs it again and where its whole output lies, and ends
with 1 if anything failed.  A file of which the arguments choose no test counts as passed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: pytest's exit codes for "all passed" and "no test was chosen".
GOOD_CODES: Final = (0, 5)


@dataclass(frozen=True)
class Run:
    """One run of pytest; `label` names it in what is printed and in the name of its log."""

    label: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The command line."""
        return [
            sys.executable,
            "-m",
            "pytest",
            "--quiet",
            "-p",
            "no:cacheprovider",
            *self.arguments,
        ]

    def __call__(self, logs: Path) -> bool:
        """Run it, print one line of how it went, and return whether it passed."""
        log = logs / f"{self.label.replace('/', '.')}.log"
        start = time.monotonic()
        with log.open("wb") as output:
            code = subprocess.run(
                self.command, stdout=output, stderr=subprocess.STDOUT, check=False
            ).returncode
        seconds = time.monotonic() - start
        lines = log.read_text(errors="replace").splitlines() or ["no output"]
        if code in GOOD_CODES:
            print(f"passed  {self.label}: {lines[-1]}", flush=True)
            return True
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        again = subprocess.list2cmdline(self.command)
        shown = [*failed, lines[-1], f"again: {again}", f"output: {log}"]
        print(f"FAILED  {self.label} after {seconds:.0f} s, exit code {code}", flush=True)
        print("\n".join(f"        {line}" for line in shown), flush=True)
        return False


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the test files that paths name: files, and those below folders."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return found


def alone(paths: Sequence[Path], pytest_arguments: Sequence[str]) -> list[Run]:
    """Return a run for each test file."""
    return [Run(f"{path} alone", (*pytest_arguments, str(path))) for path in files_of(paths)]


def shuffled(
    paths: Sequence[Path], pytest_arguments: Sequence[str], seeds: Sequence[int], jobs: int
) -> list[Run]:
    """Return a run of all tests for each seed, on so many workers."""
    workers = ("--numprocesses", str(jobs), "--dist=loadscope") if jobs > 1 else ()
    names = [str(path) for path in paths]
    return [
        Run(f"order {seed}", (*pytest_arguments, *workers, f"--random-order-seed={seed}", *names))
        for seed in seeds
    ]


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says, before its `--`."""
    parser = argparse.ArgumentParser(
        description="Run each test file alone and all tests in random orders."
    )
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("tests")])
    parser.add_argument("--orders", type=int, default=3, help="how many random orders")
    parser.add_argument("--seed", type=int, action="append", help="the seed of an order, not N new")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes at a time")
    parser.add_argument("--no-alone", action="store_true", help="random orders only")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run all and return the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = options_of(arguments[:split])
    rest = arguments[split + 1 :]
    chance = random.SystemRandom()
    seeds = options.seed or [chance.randrange(1, 1_000_000) for _ in range(options.orders)]
    logs = Path(tempfile.mkdtemp(prefix="orders-"))
    print(f"seeds: {' '.join(map(str, seeds)) or 'none'}; output in {logs}", flush=True)
    singles = [] if options.no_alone else alone(options.paths, rest)
    with ThreadPoolExecutor(options.jobs) as pool:
        passed = list(pool.map(lambda run: run(logs), singles))
    passed += [run(logs) for run in shuffled(options.paths, rest, seeds, options.jobs)]
    print(f"{passed.count(True)} runs passed, {passed.count(False)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
