"""What a queue holds by its records: one set of rules, for a start and for the tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.recovery.queue import RestoredQueue
from leveret.store.records.fields import table_identity
from leveret.store.recovery.queue_state import QueueState
from leveret.store.survey.holdings import Holding

HIGHEST = 40

sequences = st.integers(0, HIGHEST)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), sequences, st.integers(0, 12)),
        st.tuples(st.just("purge"), sequences, st.just(0)),
        st.tuples(st.just("trim"), sequences, st.just(0)),
    ),
    max_size=12,
)


@given(held=st.sets(sequences), counted=st.sets(sequences), taken=steps)
def test_what_is_taken_out_is_gone(
    held: set[int], counted: set[int], taken: list[tuple[str, int, int]]
) -> None:
    state: QueueState[str] = QueueState(7)
    for sequence in sorted(held):
        state.messages[sequence] = f"message {sequence}"
        state.took(sequence)
    for sequence in counted:
        state.counts[sequence] = 1
    left, counts, dead, begin = set(held), set(counted), set[int](), 0
    following = max(held, default=-1) + 1
    for what, number, more in taken:
        gone = set(range(number, number + more + 1)) if what == "ack" else set(range(number))
        if what == "ack":
            state.ack(number, number + more)
        elif what == "purge":
            state.purge(number)
        else:
            state.trim(number)
            begin = max(begin, number)
        left -= gone
        if what != "trim":
            dead |= gone
            counts -= gone
            following = max(following, max(gone, default=-1) + 1)
    assert set(state.messages) == left
    assert set(state.counts) == counts
    assert {one for one in range(2 * HIGHEST) if state.dead.has(one)} == dead
    assert (state.first_offset, state.next_sequence) == (begin, following)


@given(held=st.sets(sequences), first=sequences, more=st.integers(-1, HIGHEST))
def test_the_messages_between_two_sequences_are_found(
    held: set[int], first: int, more: int
) -> None:
    state: QueueState[str] = QueueState(7)
    for sequence in held:
        state.messages[sequence] = ""
    last = first + more
    assert sorted(state.kept_between(first, last)) == sorted(
        sequence for sequence in held if first <= sequence <= last
    )


def test_a_stream_is_certain_again_where_its_id_is_told_after_damage() -> None:
    state: QueueState[str] = QueueState(7)
    state.identified({"stream_id": "s-1"})
    assert state.stream_id == "s-1"
    state.unsure = True
    assert state.stream_id == ""
    state.identified({"id": 7})
    assert state.stream_id == ""
    state.identified({"stream_id": b"s-2"})
    assert state.stream_id == "s-2"


def test_a_start_and_the_tools_go_by_the_same_rules() -> None:
    for kind in (RestoredQueue, Holding):
        assert issubclass(kind, QueueState)
        for rule in ("ack", "purge", "trim", "took", "kept_between", "identified"):
            assert rule not in vars(kind)


def test_tables_are_told_apart_by_their_values_and_not_by_their_order() -> None:
    assert table_identity({"a": 1, "b": "x"}) == table_identity({"b": "x", "a": 1})
    tables: list[dict[str, object]] = [{}, {"a": 1}, {"a": True}, {"a": "1"}, {"b": 1}]
    assert len({table_identity(one) for one in tables}) == len(tables)
