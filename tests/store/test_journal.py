"""The journal in memory: what is framed, what is merged, what is counted, and what is copied."""

from __future__ import annotations

import pytest

from leveret.errors import AmqpError
from leveret.limits import BODY_APART_BYTES, JOURNAL_FILE_BYTES, TABLE_DEPTH_MAX
from leveret.store.journal.journal import ACK_RANGES_PER_RECORD_MAX, Journal, JournalGroup
from leveret.store.journal.scan import JournalScan
from leveret.store.records.record import (
    ACK,
    DEFINE,
    DELETE,
    GROUP_HEADER_BYTES,
    MOVE,
    PUBLISH,
    PURGE,
    REQUEUE,
    RETAINED_COUNT,
    TX,
)
from leveret.store.recovery.apply import Applier
from support.store.store_model import Told, content, message

SEED = 0x1234_5678_9ABC


def sealed(journal: Journal) -> JournalGroup:
    """Return the next group, which must be there."""
    group = journal.seal()
    assert group is not None
    return group


def told(group: JournalGroup, seed: int = SEED) -> tuple[list[int], list[tuple[object, ...]]]:
    """Return the kinds of a group's records and what a replay is told of them."""
    scan = JournalScan(group.data, seed, "test", group.file_number, group.number)
    replay = Told()
    applier = Applier(replay)
    kinds = []
    while scan.next():
        kinds.append(int(scan.kind))
        applier.apply(scan.kind, scan.data, scan.start, scan.end)
    assert scan.damages == []
    assert len(kinds) == group.records
    return kinds, replay.calls


def test_every_verb_is_told_again_as_it_was_called() -> None:
    journal = Journal(SEED)
    sent = message(b"hello")
    journal.define("queue", {"id": 1, "name": "q", "durable": True, "arguments": {"x": 2}})
    journal.target(1, 10)
    journal.target(2, 20)
    journal.publish(sent)
    journal.requeue(1, 10, 3)
    journal.target(3, 30)
    journal.move(1, 10, message(b"dead"))
    journal.purge(2, 21)
    journal.trim(4, 400)
    journal.consumer_offset(4, b"reader", 17)
    journal.forget_consumer(4, b"reader")
    journal.retain(1, 11)
    journal.delete("queue", {"id": 1})
    journal.checkpoint(5)
    journal.ack(2, 20, 20)
    journal.clean_stop(99)
    _, calls = told(sealed(journal))
    assert calls == [
        ("define", "queue", {"id": 1, "name": "q", "durable": True, "arguments": {"x": 2}}),
        ("publish", content(sent), [(1, 10), (2, 20)]),
        ("requeue", 1, 10, 3),
        ("publish", content(message(b"dead")), [(3, 30)]),
        ("ack", 1, 10, 10),
        ("purge", 2, 21),
        ("trim", 4, 400),
        ("consumer_offset", 4, b"reader", 17),
        ("consumer_forgotten", 4, b"reader"),
        ("requeue", 1, 11, RETAINED_COUNT),
        ("delete", "queue", {"id": 1}),
        ("ack", 2, 20, 20),
    ]


@pytest.mark.parametrize(
    "size", [0, 1, 1023, 1024, BODY_APART_BYTES - 1, BODY_APART_BYTES, BODY_APART_BYTES + 1]
)
@pytest.mark.parametrize("in_tx", [False, True])
def test_bodies_of_all_sizes_come_back(size: int, in_tx: bool) -> None:
    journal = Journal(SEED)
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    if in_tx:
        journal.begin_tx()
    for sequence in range(3):
        journal.target(1, sequence)
        journal.publish(message(body))
    journal.ack(1, 0, 0)
    if in_tx:
        journal.end_tx()
    kinds, calls = told(sealed(journal))
    assert kinds == ([TX] if in_tx else [PUBLISH, PUBLISH, PUBLISH, ACK])
    expected: list[tuple[object, ...]] = [
        ("publish", content(message(body)), [(1, sequence)]) for sequence in range(3)
    ]
    assert calls == [*expected, ("ack", 1, 0, 0)]


def test_a_large_body_is_not_copied() -> None:
    journal = Journal(SEED)
    large = b"x" * BODY_APART_BYTES
    journal.target(1, 1)
    journal.publish(message(large))
    journal.begin_tx()
    journal.target(1, 2)
    journal.publish(message(large))
    journal.end_tx()
    parts = sealed(journal).parts
    assert sum(part is large for part in parts) == 2


def test_acks_that_continue_each_other_become_one_range() -> None:
    journal = Journal(SEED)
    for sequence in range(100):
        journal.ack(1, sequence, sequence)
    journal.ack(1, 100, 149)
    journal.ack(2, 150, 150)
    journal.ack(2, 152, 152)
    journal.ack(1, 150, 150)
    kinds, calls = told(sealed(journal))
    assert kinds == [ACK]
    assert calls == [
        ("ack", 1, 0, 149),
        ("ack", 2, 150, 150),
        ("ack", 2, 152, 152),
        ("ack", 1, 150, 150),
    ]


@pytest.mark.parametrize("ranges", [ACK_RANGES_PER_RECORD_MAX, ACK_RANGES_PER_RECORD_MAX + 1])
def test_one_record_holds_a_bounded_number_of_ranges(ranges: int) -> None:
    journal = Journal(SEED)
    for number in range(ranges):
        journal.ack(1, 2 * number, 2 * number)
    kinds, calls = told(sealed(journal))
    assert kinds == [ACK] * (1 if ranges == ACK_RANGES_PER_RECORD_MAX else 2)
    assert calls == [("ack", 1, 2 * number, 2 * number) for number in range(ranges)]


def test_a_run_of_acks_ends_with_its_group() -> None:
    journal = Journal(SEED)
    journal.ack(1, 0, 0)
    assert told(sealed(journal))[1] == [("ack", 1, 0, 0)]
    journal.ack(1, 1, 1)
    assert told(sealed(journal))[1] == [("ack", 1, 1, 1)]


def test_a_transaction_is_one_record_and_keeps_the_order_of_its_operations() -> None:
    journal = Journal(SEED)
    journal.ack(1, 1, 1)
    journal.begin_tx()
    journal.ack(1, 2, 2)
    journal.target(1, 7)
    journal.publish(message(b"in"))
    journal.ack(1, 3, 3)
    journal.requeue(1, 4, 1)
    with pytest.raises(RuntimeError):
        journal.seal()
    with pytest.raises(RuntimeError):
        journal.begin_tx()
    journal.end_tx()
    journal.ack(1, 4, 4)
    kinds, calls = told(sealed(journal))
    assert kinds == [TX, ACK]
    assert calls == [
        ("ack", 1, 2, 2),
        ("publish", content(message(b"in")), [(1, 7)]),
        ("ack", 1, 3, 3),
        ("requeue", 1, 4, 1),
        ("ack", 1, 1, 1),
        ("ack", 1, 4, 4),
    ]
    with pytest.raises(RuntimeError):
        journal.end_tx()


def test_a_long_transaction_of_small_messages_is_one_record() -> None:
    journal = Journal(SEED)
    expected: list[tuple[object, ...]] = []
    for round_ in range(2):
        journal.begin_tx()
        for sequence in range(2000):
            journal.target(round_, sequence)
            journal.publish(message(b"x" * 50))
            expected.append(("publish", content(message(b"x" * 50)), [(round_, sequence)]))
        journal.end_tx()
    kinds, calls = told(sealed(journal))
    assert kinds == [TX, TX]
    assert calls == expected


def test_a_transaction_without_operations_leaves_nothing() -> None:
    journal = Journal(SEED)
    journal.begin_tx()
    journal.end_tx()
    assert not journal.has_records()
    assert journal.seal() is None


def test_unsynced_bytes_are_what_was_appended_and_not_synced() -> None:
    journal = Journal(SEED)
    assert (journal.group, journal.durable_group, journal.unsynced_bytes) == (1, 0, 0)
    journal.target(1, 1)
    journal.publish(message(b"x" * 1000))
    first_bytes = journal.unsynced_bytes
    assert first_bytes > 1000
    first = sealed(journal)
    assert first.size == len(first.data) == first_bytes + GROUP_HEADER_BYTES
    assert journal.unsynced_bytes == first.size
    assert (journal.group, journal.durable_group) == (2, 0)
    journal.requeue(1, 1, 1)
    assert journal.unsynced_bytes > first.size
    second = sealed(journal)
    journal.synced(first.number)
    assert (journal.durable_group, journal.unsynced_bytes) == (1, second.size)
    journal.synced(second.number)
    assert (journal.durable_group, journal.unsynced_bytes) == (2, 0)
    with pytest.raises(RuntimeError):
        journal.synced(3)


def test_has_records_sees_acks_that_wait_for_their_record() -> None:
    journal = Journal(SEED)
    assert not journal.has_records()
    journal.ack(1, 1, 1)
    assert journal.has_records()
    sealed(journal)
    assert not journal.has_records()
    journal.ack(1, 5, 5)
    journal.ack(2, 5, 5)
    assert journal.has_records()


def test_a_file_ends_at_its_size_and_a_larger_record_makes_a_larger_file() -> None:
    journal = Journal(SEED)
    large = b"x" * (JOURNAL_FILE_BYTES + 1)
    numbers = []
    for body in (b"small", large, b"small", b"small"):
        journal.target(1, 1)
        journal.publish(message(body))
        numbers.append(sealed(journal).file_number)
    assert numbers == [1, 1, 2, 2]


def test_a_roll_lets_the_next_group_begin_a_file() -> None:
    journal = Journal(SEED, group=9, file_number=4)
    assert journal.roll() == 9
    assert journal.next_file_number == 4, "an empty file need not be left"
    journal.requeue(1, 1, 1)
    assert sealed(journal).file_number == 4
    assert journal.bytes_since_roll > 0
    assert journal.roll() == 10
    assert journal.bytes_since_roll == 0
    assert journal.next_file_number == 5
    journal.requeue(1, 1, 2)
    assert (sealed(journal).file_number, journal.next_file_number) == (5, 5)


def test_arguments_at_the_limit_of_depth_can_be_journaled() -> None:
    """A client's legal arguments may not fail in the journal for lying one level deeper."""
    arguments: dict[str, object] = {}
    for _ in range(TABLE_DEPTH_MAX - 1):
        arguments = {"a": arguments}
    journal = Journal(SEED)
    definition: dict[str, object] = {"id": 1, "name": "q", "arguments": arguments}
    journal.define("queue", definition)
    kinds, calls = told(sealed(journal))
    assert kinds == [DEFINE]
    assert calls == [("define", "queue", definition)]


def test_a_definition_that_no_table_holds_leaves_nothing() -> None:
    journal = Journal(SEED)
    broken_ones: list[dict[str, object]] = [{"name": object()}, {"arguments": {"x" * 256: 1}}]
    for broken in broken_ones:
        with pytest.raises((AmqpError, TypeError, ValueError)):
            journal.define("queue", broken)
    assert not journal.has_records()
    journal.delete("queue", {"id": 1})
    assert told(sealed(journal)) == ([DELETE], [("delete", "queue", {"id": 1})])


def test_a_name_too_long_to_store_leaves_nothing() -> None:
    journal = Journal(SEED)
    with pytest.raises(ValueError, match="255"):
        journal.consumer_offset(1, b"x" * 256, 1)
    assert not journal.has_records()
    journal.requeue(1, 2, 3)
    assert told(sealed(journal)) == ([REQUEUE], [("requeue", 1, 2, 3)])


def test_records_without_targets_and_with_many() -> None:
    journal = Journal(SEED)
    journal.publish(message(b"nowhere"))
    for queue_id in range(70_000):
        journal.target(queue_id, 1)
    journal.publish(message(b"everywhere"))
    journal.move(1, 1, message(b"to nowhere"))
    journal.purge(1, 1)
    kinds, calls = told(sealed(journal))
    assert kinds == [PUBLISH, PUBLISH, MOVE, PURGE]
    assert len(calls) == 3
    assert calls[0][2] == [(queue_id, 1) for queue_id in range(70_000)]
    assert calls[1:] == [("ack", 1, 1, 1), ("purge", 1, 1)]
