"""The core keeps its promises in the crash states of recorded runs; `make chaos` tries many more.

Each load lives twice, the second time on what a crash left of the first; of each life some points
are drawn, at each of which some states are recovered and judged.  And the replayer is judged: it
must find what a store without one of its syncs would lose.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leveret.store.disks.recording import Operation
from replay.account import Account, Holding
from replay.drive import FAULTY, KILLS, Life
from replay.loads import LOADS
from replay.replayer import Run, every_point, judge_all

STEPS = 100
LIVES = 2

#: Points of a life that are looked at, and the states that each load must make of them.
POINTS = 80
STATES_MIN = 150


def some_points(length: int) -> set[int]:
    """Draw points of a life that is so long."""
    points = range(length + 1)
    return set(random.Random(length).sample(points, min(POINTS, len(points))))


@pytest.mark.parametrize("load", LOADS)
def test_every_crash_state_keeps_the_promises(load: str) -> None:
    counts = Run(load, 1, STEPS, some_points, KILLS).check(LIVES)
    assert not counts.problems, "\n".join(counts.problems)
    assert counts.states >= STATES_MIN, counts.told()
    assert counts.second, counts.told()
    assert counts.hit, counts.told()
    assert counts.drained or not LOADS[load].drains, counts.told()


@pytest.mark.parametrize("load", LOADS)
def test_a_disk_that_fails_makes_no_false_promise(load: str) -> None:
    run = Run(load, 2, STEPS, lambda length: set(range(length - 5, length + 1)), FAULTY)
    counts = run.check(LIVES + 1)
    assert not counts.problems, "\n".join(counts.problems)
    assert counts.failures, "no life met a failure"


@pytest.mark.parametrize("load", [load for load in LOADS if load.startswith("deep")])
def test_the_deep_loads_page(load: str) -> None:
    account = lived(load).account
    assert account is not None
    changes = [change for entry in account.entries for change in entry.changes]
    assert sum(change.spills for change in changes) > 1


def lived(load: str) -> Life:
    """A life of a load on an empty disk."""
    return LOADS[load].begin(f"{load}/planted", None, Holding()).live(STEPS)


def test_a_life_as_it_was_is_right() -> None:
    assert judge_all(lived("acks"), some_points) == []


def without(life: Life, left_out: Callable[[Operation], bool]) -> Life:
    """The same life on a disk that was not asked for some things."""
    kept = [number for number, one in enumerate(life.disk.trace, 1) if not left_out(one)]
    life.disk.trace = [life.disk.trace[number - 1] for number in kept]
    life.marks = [(sum(number <= at for number in kept), group) for at, group in life.marks]
    assert life.account is not None
    life.account = Account(life.disk.trace, life.seed, life.start)
    return life


@pytest.mark.parametrize(
    ("verb", "folder"),
    [
        ("sync", "journal"),
        ("fsync_dir", "journal"),
        ("sync", "state"),
        ("fsync_dir", "state"),
        ("sync", "segments"),
        ("fsync_dir", "segments"),
    ],
)
def test_a_sync_that_is_left_out_is_found(verb: str, folder: str) -> None:
    life = without(lived("acks"), lambda one: (one.verb, one.path[: len(folder)]) == (verb, folder))
    assert judge_all(life, every_point), "the states of a store that does not sync are judged right"
