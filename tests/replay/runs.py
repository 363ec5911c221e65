"""Runs of the replayer from the command line: a load, a seed, a life, and all or one of its points.

    python tests/replay/runs.py [--load tx] [--seed 7] [--steps 150] [--life 1] [--point 123]
                                 [--mode kills]

Without a load all are run, with seeds from `--seed` on until `--states` were judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

from replay.drive import FAULTY, KILLS, PLAIN_LIFE
from replay.replayer import Counts, Run, every_point, names

STEPS = 150
LIVES = 3


def run_one(load: str, seed: int, given: argparse.Namespace) -> Counts:
    """Run a load of one seed: all of it, one life, or one point of a life."""
    chosen = every_point if given.point is None else (lambda _length: {given.point})
    run = Run(load, seed, given.steps, chosen, given.mode)
    if given.life is None:
        return run.check(LIVES)
    for number, lived in run.lives(given.life + 1):
        if number == given.life:
            run.check_life(number, lived)
    return run.counts


def main() -> int:
    """Run what was asked for; return 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--load", choices=names())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--life", type=int)
    parser.add_argument("--point", type=int)
    parser.add_argument("--mode", choices=(PLAIN_LIFE, FAULTY, KILLS), default=PLAIN_LIFE)
    parser.add_argument("--states", type=int, default=2000, help="how many to judge in all")
    given = parser.parse_args()
    total = Counts()
    seed = given.seed
    while not total.problems:
        for load in [given.load] if given.load else names():
            begun = time.monotonic()
            counts = run_one(load, seed, given)
            total.add(counts)
            seconds = time.monotonic() - begun
            sys.stdout.write(f"{load} {seed}: {counts.told()}, {seconds:.1f} s\n")
            sys.stdout.flush()
        seed += 1
        if given.load or total.states >= given.states:
            break
    sys.stdout.write("".join(f"{problem}\n" for problem in [*total.problems, total.told()]))
    return 1 if total.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
