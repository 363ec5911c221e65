"""Who waits for a sync is called once, when it is done, and very many of them in slices."""

from __future__ import annotations

import pytest

from leveret.broker.scheduler.costs import SLICE
from leveret.broker.scheduler.effects import SyncWaiter
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


def sealed(node: Node, groups: int) -> list[int]:
    """Seal so many groups of one record; return their numbers."""
    numbers = []
    for _ in range(groups):
        node.journal.define("start", {"version": "test", "time_ms": 0})
        group = node.journal.seal()
        assert group is not None
        numbers.append(int(group.number))
    return numbers


def test_very_many_are_called_in_slices_and_in_order() -> None:
    called: list[int] = []
    node = Node()
    core = node.core
    (group,) = sealed(node, 1)
    most = 2 * SLICE + 10
    for name in range(most):
        core.syncs.wait(Waiter(name, called), group)
    core.syncs.synced(group)
    for done in (SLICE, 2 * SLICE, most):
        assert called == list(range(done))
        assert core.syncs.has_ready() == (done < most)
        core.settle()


def test_a_group_that_is_not_synced_is_waited_for() -> None:
    called: list[int] = []
    node = Node()
    syncs = node.core.syncs
    first, second, third = sealed(node, 3)
    for name in range(10):
        syncs.wait(Waiter(name, called), second if name % 2 else first)
    syncs.synced(first)
    assert called == [0, 2, 4, 6, 8]
    assert not syncs.has_ready()
    syncs.wait(Waiter(10, called), third)
    syncs.synced(second)
    assert called == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    syncs.synced(third)
    assert called == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9, 10]


def test_one_that_fails_is_not_called_again_and_stops_nobody() -> None:
    called: list[int] = []
    node = Node()
    core = node.core
    (group,) = sealed(node, 1)
    for name in range(6):
        core.syncs.wait(Waiter(name, called, bad=name == 3), group)
    with pytest.raises(ZeroDivisionError):
        core.syncs.synced(group)
    core.settle()
    assert called == list(range(6))
