"""Messages by their sequences, in blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.window import RequeuedMessage
from leveret.message import Address, Message

#: Sequences in a few blocks, close together and far apart.
SEQUENCES = [*range(1, 40), *range(16_380, 16_400), 10**12]


def item(sequence: int) -> RequeuedMessage:
    return RequeuedMessage(sequence, Message(Address(b"", b""), b"", b"%d" % sequence, 0, True), 0)


@given(
    st.lists(st.tuples(st.sampled_from(["put", "pop", "get"]), st.sampled_from(SEQUENCES))),
)
def test_it_holds_what_a_dict_holds(steps: list[tuple[str, int]]) -> None:
    table = MessageTable()
    model: dict[int, RequeuedMessage] = {}
    for what, sequence in steps:
        if what == "put":
            model[sequence] = item(sequence)
            table.put(model[sequence])
        elif what == "pop":
            assert table.pop(sequence) is model.pop(sequence, None)
        else:
            assert table.get(sequence) is model.get(sequence)
            assert table.has(sequence) == (sequence in model)
        assert table.count == len(model)
        assert sorted(item.sequence for item in table.values()) == sorted(model)
        for last in (sequence, sequence + 40, sequence + 100_000):
            assert {one.sequence for one in table.within(sequence, last)} == {
                one for one in model if sequence <= one <= last
            }
        assert {int(one.sequence): one for one in table.values()} == model


def test_what_is_empty_is_not_kept() -> None:
    table = MessageTable()
    for sequence in range(1, 10_000):
        table.put(item(sequence))
        assert table.pop(sequence) is not None
        assert len(table.blocks()) <= 1
    for sequence in range(1, 10_000):
        table.put(item(sequence))
    assert len(table.blocks()) == 10_000 // 16
    for sequence in range(9_999, 0, -1):
        assert table.pop(sequence) is not None
    assert len(table.blocks()) <= 1
