"""Long operations: slices in turns, their order, and what is left of them at a stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.broker.core.turn import Turn
from leveret.limits import STEPS_PER_SLICE, WORK_STEPS_PER_TURN
from support.node.core import Node


def counting(
    turn: Turn, name: str, steps: int, log: list[str], follows: Iterator[int] | None = None
) -> Iterator[int]:
    """Take so many steps, log the name at each slice and at the end, and start what follows."""
    while steps > STEPS_PER_SLICE:
        log.append(name)
        steps -= STEPS_PER_SLICE
        yield STEPS_PER_SLICE
    log.append(name)
    turn.steps += steps
    log.append(f"{name} ended")
    if follows is not None:
        turn.start(follows)


@pytest.fixture
def turn() -> Turn:
    return Node().turn


def test_a_short_one_ends_at_once(turn: Turn) -> None:
    log: list[str] = []
    turn.start(counting(turn, "a", STEPS_PER_SLICE, log))
    assert log == ["a", "a ended"]
    assert not turn.works


def test_long_ones_take_turns(turn: Turn) -> None:
    log: list[str] = []
    turn.start(counting(turn, "a", 3 * STEPS_PER_SLICE, log))
    turn.start(counting(turn, "b", 2 * STEPS_PER_SLICE, log))
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
        turn.start(counting(turn, name, 3 * STEPS_PER_SLICE, log))
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
    second = counting(turn, "b", 3 * STEPS_PER_SLICE, log)
    turn.start(counting(turn, "a", 2 * STEPS_PER_SLICE, log, second))
    turn.settle()
    assert log == ["a", "a", "a ended", "b"]
    turn.settle()
    turn.settle()
    assert log[4:] == ["b", "b", "b ended"]


def test_a_stop_does_all_that_is_left(turn: Turn) -> None:
    log: list[str] = []
    second = counting(turn, "b", 30 * STEPS_PER_SLICE, log)
    turn.start(counting(turn, "a", 20 * STEPS_PER_SLICE, log, second))
    turn.end_works()
    assert log[-1] == "b ended"
    assert turn.steps >= 50 * STEPS_PER_SLICE
