"""Runs of the machine, as many as the steps that are wanted take; `make model` runs this file.

    python tests/model/runs.py [--steps 100000] [--seed 0]

A run of a seed draws the same steps each time.  What it prints at the end: how many steps were
taken, and how many of them ended in a difference.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

from model.machine import STEPS, Machine
from model.reference import Reference

STEPS_PER_EXAMPLE = 50
EXAMPLES_PER_SEED = 20

SETTINGS = settings(
    max_examples=EXAMPLES_PER_SEED,
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def run(wanted: int, first_seed: int, *, shrink: bool = True) -> int:
    """Run seeds until so many steps are taken in all; return the number of the last seed.

    Raises: Difference, after hypothesis printed the shortest steps to it.
    """
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    number = first_seed - 1
    while taken() < wanted:
        number += 1
        Machine.seed = number
        seeded = seed(number)(type("Machine", (Machine,), {}))
        run_state_machine_as_test(seeded, settings=settings(SETTINGS, phases=phases))
    return number


def taken() -> int:
    """How many steps were taken."""
    return sum(Machine.steps.values())


def never() -> list[str]:
    """The rules that no run has taken."""
    return sorted(set(STEPS) - set(Machine.steps))


def main() -> int:
    """Run, and print what was done; 1 when there was a difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-shrink", action="store_true", help="show a difference as it came")
    wanted = parser.parse_args()
    start = time.monotonic()
    differences = 0
    try:
        run(wanted.steps, wanted.seed, shrink=not wanted.no_shrink)
    except Exception:
        differences = 1
        _say(f"of seed {Machine.seed}")
        raise
    finally:
        _tell("rules", Machine.steps)
        _tell("seen", Reference.seen)
        _say(f"never taken: {', '.join(never()) or 'no rule'}")
        _say(f"{taken()} steps in {time.monotonic() - start:.0f} s, {differences} differences")
    return 0


def _tell(title: str, counts: Counter[str]) -> None:
    _say(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
