"""Who waits for a sync is called once, when it is done, and very many of them in slices."""

from __future__ import annotations

import pytest

from leveret.broker.core.effects import SyncWaiter
from leveret.broker.core.turn import SyncWaiters
from support.node.core import Node


class Waiter(SyncWaiter):
    """Notes that it was called; a bad one raises then."""

    def __init__(self, name: int, called: list[int], bad: bool = False) -> None:
        super().__init__()
        self.name = name
        self.called = called
        self.bad = bad

    def synced(self, group: int) -> None:
        self.called.append(self.name)
        if self.bad:
            raise ZeroDivisionError


def test_very_many_are_called_in_slices_and_in_order() -> None:
    called: list[int] = []
    turn = Node().turn
    waiters = SyncWaiters()
    for name in range(100):
        waiters.add(Waiter(name, called), 1)
    waiters.synced(1)
    for rest in (60, 20, 0):
        before = int(turn.steps)
        waiters.call(turn, 40)
        assert int(turn.steps) - before <= 40
        assert called == list(range(100 - rest))
        assert waiters.are_late() == (rest > 0)


def test_a_group_that_is_not_synced_is_waited_for() -> None:
    called: list[int] = []
    turn = Node().turn
    waiters = SyncWaiters()
    for name in range(10):
        waiters.add(Waiter(name, called), 1 + name % 2)
    waiters.synced(1)
    waiters.call(turn, 100)
    assert called == [0, 2, 4, 6, 8]
    assert not waiters.are_late()
    waiters.synced(2)
    waiters.call(turn, 3)
    assert called == [0, 2, 4, 6, 8, 1, 3, 5]
    waiters.add(Waiter(10, called), 3)
    waiters.synced(3)
    waiters.call(turn, 100)
    assert called == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9, 10]


def test_one_that_fails_is_not_called_again_and_stops_nobody() -> None:
    called: list[int] = []
    turn = Node().turn
    waiters = SyncWaiters()
    for name in range(6):
        waiters.add(Waiter(name, called, bad=name == 3), 1)
    waiters.synced(1)
    with pytest.raises(ZeroDivisionError):
        waiters.call(turn, 100)
    waiters.call(turn, 100)
    assert called == list(range(6))
