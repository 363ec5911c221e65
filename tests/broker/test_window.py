"""The window of new messages and the returns, each against a simple model."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.backlog.window import NOTHING, RequeuedMessage, Returns, Window, window_of
from leveret.message import Address, Message

#: Taken places at which a window begins to move its messages (`window._COMPACT_AT`).
COMPACT_AT = 4096


def message(number: int) -> Message:
    """A message that its body tells from others."""
    return Message(Address(b"", b"q"), b"\0\0", b"%d" % number, 0, False)


def number_of(taken: Message) -> int:
    """The number that `message` was given."""
    return int(taken.body)


class Windows:
    """A window and its model, a list of (sequence, number)."""

    def __init__(self, start: int) -> None:
        self.window = Window(start)
        self.model: list[int] = []
        self.next = start

    def append(self, count: int) -> None:
        for _ in range(count):
            assert self.window.append(message(self.next)) == self.next
            self.model.append(self.next)
            self.next += 1

    def take(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            sequence = self.model.pop(0)
            assert self.window.first() == sequence
            assert number_of(self.window.take()) == sequence

    def restart(self, gap: int) -> None:
        self.next += gap
        self.window = Window(self.next)
        self.model = []

    def check(self) -> None:
        window = self.window
        assert window.first() == (self.model[0] if self.model else NOTHING)
        assert window.count() == len(self.model)
        assert [number_of(one.message) for one in window.waiting()] == self.model
        assert (window.head_sequence, window.next_sequence) == (
            self.model[0] if self.model else self.next,
            self.next,
        )


window_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 5)),
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("restart"), st.integers(0, 3)),
    )
)


@given(st.integers(0, 2**40), window_steps)
def test_a_window_is_a_list(start: int, steps: list[tuple[str, int]]) -> None:
    both = Windows(start)
    for name, number in steps:
        getattr(both, name)(number)
        both.check()


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from([1, COMPACT_AT // 2, COMPACT_AT - 1, COMPACT_AT, COMPACT_AT + 1]),
        min_size=2,
        max_size=6,
    )
)
def test_a_window_is_a_list_where_it_moves_its_messages(counts: list[int]) -> None:
    both = Windows(1)
    for place, count in enumerate(counts):
        both.append(count)
        both.take(counts[place - 1] - place % 2)
        both.check()


@pytest.mark.parametrize("behind", [-1, 0, 1])
def test_taken_places_are_given_back(behind: int) -> None:
    """When they are half of the list; before, moving the rest would cost more than it gives."""
    both = Windows(1)
    both.append(2 * COMPACT_AT + behind)
    both.take(COMPACT_AT)
    # One more is needed where more than half is still there.
    assert (both.window.head == 0) == (behind <= 0)
    both.take(1)
    both.check()
    assert len(both.window.items) <= 2 * COMPACT_AT
    both.take(2 * COMPACT_AT)
    assert both.window.items == []


def test_a_window_holds_no_message_that_was_taken() -> None:
    window = Window(1)
    for number in (1, 2):
        window.append(message(number))
    taken = window.take()
    assert all(one is not taken for one in window.items)


# -- returns ---------------------------------------------------------------------------------------


def returned(sequences: Iterable[int]) -> Returns:
    """Messages that came back once."""
    returns = Returns()
    for sequence in sequences:
        returns.put(RequeuedMessage(sequence, message(sequence), 1))
    return returns


class ReturnsModel:
    """Returns and their model: numbers with counts by sequence."""

    def __init__(self) -> None:
        self.returns = Returns()
        self.model: dict[int, int] = {}

    def put(self, sequence: int, count: int) -> None:
        if sequence not in self.model:
            self.returns.put(RequeuedMessage(sequence, message(sequence), count))
            self.model[sequence] = count

    def take(self) -> None:
        if self.model:
            sequence = min(self.model)
            assert self.returns.first() == sequence
            item = self.returns.remove(sequence)
            assert item is not None
            assert number_of(item.message) == sequence
            assert item.count == self.model.pop(sequence)

    def remove(self, sequence: int) -> None:
        item = self.returns.remove(sequence)
        count = self.model.pop(sequence, None)
        if item is None:
            assert count is None
        else:
            assert (item.sequence, item.count) == (sequence, count)

    def fill(self, sequences: list[int]) -> None:
        self.model = dict.fromkeys(sorted(sequences), 1)
        self.returns = returned(self.model)

    def check(self) -> None:
        returns = self.returns
        assert returns.first() == min(self.model, default=NOTHING)
        assert returns.count() == len(self.model)
        assert [(one.sequence, one.count) for one in returns.waiting()] == sorted(
            self.model.items()
        )
        for sequence in range(12):
            assert (returns.at(sequence) is not None) == (sequence in self.model)


@given(
    st.lists(st.integers(0, 9), unique=True),
    st.lists(
        st.tuples(st.sampled_from(["put", "take", "remove"]), st.integers(0, 11), st.integers(0, 5))
    ),
)
def test_returns_come_by_their_old_places(
    filled: list[int], steps: list[tuple[str, int, int]]
) -> None:
    both = ReturnsModel()
    both.fill(filled)
    both.check()
    for what, sequence, count in steps:
        if what == "put":
            both.put(sequence, count)
        elif what == "remove":
            both.remove(sequence)
        else:
            both.take()
        both.check()


def in_order(returns: Returns) -> list[int]:
    """Take all messages out, the first one each time."""
    taken = [returns.remove(returns.first()) for _ in range(returns.count())]
    return [number_of(item.message) for item in taken if item is not None]


def test_few_of_very_many_are_taken_out_of_the_middle_at_their_own_cost() -> None:
    """The rest is neither moved nor copied, and the messages are held no more."""
    returns = returned(range(10_000))
    free = RequeuedMessage(0, message(0), 1)
    for sequence in range(5000, 5100):
        item = returns.remove(sequence)
        assert item is not None
        assert sys.getrefcount(item) == sys.getrefcount(free)
    for sequence in range(5000, 5100):
        returns.put(RequeuedMessage(sequence, message(sequence), 2))
    assert in_order(returns) == list(range(10_000))
    assert returns.blocks() == []


def test_nothing_that_grows_with_the_messages_that_came_back_moves_all_of_them() -> None:
    """Not even where one of each block is taken out and put back again and again."""
    returns = returned(range(20_000))
    for _ in range(200):
        for sequence in range(500, 20_000, 1000):
            item = returns.remove(sequence)
            assert item is not None
            returns.put(item)
    for block in returns.blocks():
        assert len(block.messages) <= 1024
    # So it is where blocks come and go behind the first.
    returns = returned([0])
    for _ in range(1000):
        returns.put(RequeuedMessage(5000, message(5000), 1))
        assert returns.remove(5000) is not None
    assert in_order(returns) == [0]


def recovered(*sequences: int) -> list[RequeuedMessage]:
    """Messages as recovery hands them over."""
    return [RequeuedMessage(sequence, message(sequence), 0) for sequence in sequences]


@given(st.sets(st.integers(5, 40), min_size=1), st.integers(0, 20))
def test_recovered_messages_become_a_window_where_they_lie_close(
    found: set[int], more: int
) -> None:
    sequences = sorted(found)
    end = sequences[-1] + 1 + more
    window = window_of(recovered(*sequences), end)
    if end - sequences[0] > 2 * len(sequences):
        assert window is None
        return
    assert window is not None
    assert window.count() == len(sequences)
    assert window.append(message(end)) == end
    taken = []
    while (first := window.first()) != NOTHING:
        assert number_of(window.take()) == first
        taken.append(first)
    assert taken == [*sequences, end]


def test_none_or_what_came_back_before_is_no_window() -> None:
    assert window_of([], 7) is None
    back = recovered(1, 2, 3)
    back[1].count = 1
    assert window_of(back, 4) is None
