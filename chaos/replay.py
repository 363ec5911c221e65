"""Crash states: recorded runs of the real core, each state that a crash could have left recovered.

No process is killed here.  The core runs on a disk in memory that records what it is asked for
(`tests/replay`); of each run all points are taken, and at each of them what a crash could have kept
is built, recovered and judged: by what the clients were told, and by what the journal says.  A run
counts as one state; images that were recovered before are not counted again.

A failure says which command finds the same state again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final

from chaos.board import Row
from replay.drive import FAULTY, KILLS, PLAIN_LIFE
from replay.loads import LOADS
from replay.replayer import Counts, Run, every_point

NAME: Final = "replay"
RUNS: Final = 100_000

WORKERS: Final = 2
STEPS: Final = 150
LIVES: Final = 3

#: What befalls the lives of a seed, in turn.
MODES: Final = (PLAIN_LIFE, KILLS, FAULTY)

SAID_EACH: Final = 5000


def run(runs: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Recover and judge at least so many states; a row for each load."""
    totals: dict[str, Counts] = {}
    todo = _todo(seed)
    said = 0
    with ProcessPoolExecutor(WORKERS) as pool:
        under_way: dict[Future[Counts], str] = {}
        while True:
            states = sum(counts.states for counts in totals.values())
            broken = any(counts.problems for counts in totals.values())
            if states >= said + SAID_EACH:
                said = states
                say(f"{states:,} states")
            while len(under_way) < WORKERS and states < runs and not broken:
                load, number, mode = next(todo)
                under_way[pool.submit(live, load, number, mode)] = load
            if not under_way:
                break
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                totals.setdefault(under_way.pop(done), Counts()).add(done.result())
    for counts in totals.values():
        for problem in counts.problems:
            say(problem)
    return [_row(load, counts) for load, counts in totals.items()]


def _todo(seed: int) -> Iterator[tuple[str, int, str]]:
    """Yield loads, each with a seed and what befalls it, in turn."""
    first = random.Random(seed).randrange(1 << 24)
    for number in itertools.count(first):
        for load in LOADS:
            yield load, number, MODES[number % len(MODES)]


def live(load: str, seed: int, mode: str) -> Counts:
    """Live and judge the lives of one seed; in a process of its own."""
    return Run(load, seed, STEPS, every_point, mode).check(LIVES)


def _row(load: str, counts: Counts) -> Row:
    """Return what came of one load."""
    lost = phantom = altered = unbooted = 0
    for problem in counts.problems:
        lost += "is lost" in problem
        phantom += "from nowhere" in problem
        altered += "altered" in problem
        unbooted += "the recovery ended by" in problem
    others = len(counts.problems) - lost - phantom - altered
    note = f"{counts.lives} lives, {counts.second:,} second crashes, {counts.hit:,} bits changed"
    return Row(
        f"crash states: {load}",
        counts.states,
        counts.states - unbooted,
        counts.confirmed,
        lost,
        phantom,
        altered,
        max(others, 0),
        note=f"{note}, {counts.drained:,} drained",
    )
