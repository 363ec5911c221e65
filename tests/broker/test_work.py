"""Long operations: slices in turns, their order, and what is left of them at a stop."""

from __future__ import annotations

import pytest

from leveret.broker.core.turn import Turn
from leveret.broker.scheduler.task import Work
from leveret.limits import STEPS_PER_SLICE, WORK_STEPS_PER_TURN
from support.node.core import Node


class Counting(Work):
    """A work of so many steps, which logs its name at each slice."""

    def __init__(self, turn: Turn, name: str, steps: int, log: list[str]) -> None:
        self.turn = turn
        self.name = name
        self.left = steps
        self.log = log
        self.follows: Work | None = None

    def step(self, steps: int) -> bool:
        done = min(int(steps), self.left)
        self.turn.steps += done
        self.left -= done
        self.log.append(self.name)
        return self.left > 0

    def ended(self) -> None:
        self.log.append(f"{self.name} ended")
        if self.follows is not None:
            self.turn.begin(self.follows)


@pytest.fixture
def turn() -> Turn:
    return Node().turn


def test_a_short_one_ends_at_once(turn: Turn) -> None:
    log: list[str] = []
    turn.begin(Counting(turn, "a", STEPS_PER_SLICE, log))
    assert log == ["a", "a ended"]
    assert not turn.works


def test_long_ones_take_turns(turn: Turn) -> None:
    log: list[str] = []
    turn.begin(Counting(turn, "a", 3 * STEPS_PER_SLICE, log))
    turn.begin(Counting(turn, "b", 2 * STEPS_PER_SLICE, log))
    assert log == ["a", "b"]
    turn.settle()
    assert turn.resume
    assert log == ["a", "b", "a", "b", "b ended"]
    turn.settle()
    assert log[5:] == ["a", "a ended"]
    assert not turn.resume


def test_a_turn_has_steps_for_some_of_them(turn: Turn) -> None:
    """The others come first in the next one."""
    log: list[str] = []
    for name in "abc":
        turn.begin(Counting(turn, name, 3 * STEPS_PER_SLICE, log))
    log.clear()
    before = turn.steps
    turn.settle()
    assert log == ["a", "b"]
    assert turn.steps - before == WORK_STEPS_PER_TURN
    turn.settle()
    assert log == ["a", "b", "c", "a", "a ended"]
    turn.settle()
    assert log[5:] == ["b", "b ended", "c", "c ended"]


def test_the_end_of_one_may_begin_another(turn: Turn) -> None:
    """It gets its other slices in later turns."""
    log: list[str] = []
    first = Counting(turn, "a", 2 * STEPS_PER_SLICE, log)
    first.follows = Counting(turn, "b", 3 * STEPS_PER_SLICE, log)
    turn.begin(first)
    turn.settle()
    assert log == ["a", "a", "a ended", "b"]
    turn.settle()
    turn.settle()
    assert log[4:] == ["b", "b", "b ended"]


def test_a_stop_does_all_that_is_left(turn: Turn) -> None:
    log: list[str] = []
    first = Counting(turn, "a", 20 * STEPS_PER_SLICE, log)
    first.follows = Counting(turn, "b", 30 * STEPS_PER_SLICE, log)
    turn.begin(first)
    turn.end_works()
    assert log[-1] == "b ended"
    assert turn.steps >= 50 * STEPS_PER_SLICE
