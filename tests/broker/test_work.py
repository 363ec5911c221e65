"""Long operations: slices in turns, their order, and what is left of them at a stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.broker.core.core import Core
from leveret.broker.scheduler.costs import SHARE_OF_TASKS, SLICE
from leveret.broker.scheduler.task import WAIT
from leveret.limits import UNSYNCED_BYTES_MAX
from support.node.core import Node


def counting(
    core: Core, name: str, steps: int, log: list[str], follows: Iterator[int] | None = None
) -> Iterator[int]:
    """Take so many steps, log the name at each slice and at the end, and start what follows."""
    while steps > SLICE:
        log.append(name)
        steps -= SLICE
        yield SLICE
    log.append(name)
    core.scheduler.spent += steps
    log.append(f"{name} ended")
    if follows is not None:
        core.scheduler.start(follows)


@pytest.fixture
def core() -> Core:
    return Node().core


def test_a_short_one_ends_at_once(core: Core) -> None:
    log: list[str] = []
    core.scheduler.start(counting(core, "a", SLICE, log))
    assert log == ["a", "a ended"]
    assert not core.scheduler.tasks


def test_long_ones_take_turns(core: Core) -> None:
    log: list[str] = []
    core.scheduler.start(counting(core, "a", 3 * SLICE, log))
    core.scheduler.start(counting(core, "b", 2 * SLICE, log))
    assert log == ["a", "b"]
    core.settle()
    assert core.scheduler.resume
    assert log == ["a", "b", "a", "b", "b ended"]
    core.settle()
    assert log[5:] == ["a", "a ended"]
    assert not core.scheduler.resume


def test_a_turn_has_steps_for_some_of_them(core: Core) -> None:
    """The others come first in the next one."""
    log: list[str] = []
    for name in "abc":
        core.scheduler.start(counting(core, name, 3 * SLICE, log))
    log.clear()
    before = core.scheduler.spent
    core.settle()
    assert log == ["a", "b"]
    assert core.scheduler.spent - before == SHARE_OF_TASKS
    core.settle()
    assert log == ["a", "b", "c", "a", "a ended"]
    core.settle()
    assert log[5:] == ["b", "b ended", "c", "c ended"]


def test_the_end_of_one_may_begin_another(core: Core) -> None:
    """It gets its other slices in later turns."""
    log: list[str] = []
    second = counting(core, "b", 3 * SLICE, log)
    core.scheduler.start(counting(core, "a", 2 * SLICE, log, second))
    core.settle()
    assert log == ["a", "a", "a ended", "b"]
    core.settle()
    core.settle()
    assert log[4:] == ["b", "b", "b ended"]


def test_a_stop_does_all_that_is_left(core: Core) -> None:
    log: list[str] = []
    second = counting(core, "b", 30 * SLICE, log)
    core.scheduler.start(counting(core, "a", 20 * SLICE, log, second))
    core.scheduler.end_tasks()
    assert log[-1] == "b ended"
    assert core.scheduler.spent >= 50 * SLICE


def test_a_stop_gives_up_what_waits_for_the_disk(core: Core) -> None:
    """Nothing is written while tasks come to their end: waiting for it would never end."""

    def rejecting() -> Iterator[int]:
        for _ in range(9):
            core.journal.define("start", {"version": "x" * (UNSYNCED_BYTES_MAX // 8 - 1000)})
        while core.scheduler.is_writing_much():
            yield WAIT

    core.scheduler.start_later(rejecting())
    core.scheduler.end_tasks()
    assert len(core.scheduler.tasks) == 1
