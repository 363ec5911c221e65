"""Where messages wait: the window and what came back, against simple models."""

from __future__ import annotations

import bisect

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.source import NOTHING, Returned, Returns, Window
from leveret.message import Address, Message

ADDRESS = Address(b"", b"q")


def message(number: int) -> Message:
    """A message that is told by its time."""
    return Message(ADDRESS, b"\0\0", b"", number, True)


#: Runs of appends and takes: long ones, so that the window's list is packed.
RUNS = st.lists(st.tuples(st.sampled_from(["append", "take"]), st.integers(1, 7000)), max_size=12)


@given(start=st.integers(0, 1 << 40), runs=RUNS)
def test_a_window_is_a_queue_whose_places_are_sequences(
    start: int, runs: list[tuple[str, int]]
) -> None:
    window = Window(start)
    first = end = start
    for verb, count in runs:
        for _ in range(count if verb == "append" else min(count, end - first)):
            if verb == "append":
                assert window.append(message(end)) == end
                end += 1
            else:
                assert window.first() == first
                assert window.take().timestamp_ms == first
                first += 1
        assert window.count() == end - first
        assert (window.first() == NOTHING) == (first == end)
        assert (window.head_sequence, window.next_sequence) == (first, end)
        assert len(window.items) <= 2 * (end - first) + 4096
    assert [m.timestamp_ms for m in window.waiting()] == list(range(first, end))


def test_a_restarted_window_goes_on_with_later_sequences() -> None:
    window = Window(1)
    for number in range(1, 6):
        window.append(message(number))
    window.take()
    window.restart(window.next_sequence)
    assert window.first() == NOTHING
    assert window.append(message(6)) == 6
    assert window.take().timestamp_ms == 6


@given(
    filled=st.sets(st.integers(0, 50)),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 100)), max_size=80),
)
def test_what_came_back_is_read_by_its_old_place(filled: set[int], steps: list[int | None]) -> None:
    """`None` takes, a number puts; a sequence is there once at a time."""
    returns = Returns()
    model = sorted(filled)
    returns.fill([Returned(number, message(number), 3) for number in model])
    counts = dict.fromkeys(model, 3)
    for step in steps:
        if step is None:
            assert returns.first() == (model[0] if model else NOTHING)
            if model:
                number = model.pop(0)
                assert returns.take().timestamp_ms == number
                assert returns.taken_count == counts[number]
        elif step not in model:
            bisect.insort(model, step)
            counts[step] = step + 1
            returns.put(Returned(step, message(step), step + 1))
        assert returns.count() == len(model)
        assert [item.sequence for item in returns.waiting()] == model
        assert [number for number in range(101) if returns.holds(number)] == model
