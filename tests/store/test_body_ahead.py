"""Large bodies that precede their messages: whole or not there, after a start and for all tools."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.body_ahead import BodyAhead
from leveret.store.journal.files import journal_path
from leveret.store.journal.journal import Journal
from leveret.store.journal.scan import JournalScan
from leveret.store.records.record import BODY_PART, DEFINE, MOVE, PUBLISH, PUBLISH_IN_PARTS, TX
from leveret.store.recovery.apply import Applier
from leveret.store.survey.dump import Dump
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.store.store_model import NOW, UUID, Store, Told, content, message

SEED = 0x1234_5678_9ABC
BODY = random.Random(1).randbytes(10_000)
PIECE_BYTES = 1000


def written(journal: Journal, body: bytes = BODY, *, complete: bool = True) -> BodyAhead:
    """Write a body ahead of its message."""
    ahead = BodyAhead(journal, PIECE_BYTES)
    for start in range(0, len(body), PIECE_BYTES):
        ahead.write(body[start : start + PIECE_BYTES])
    if complete:
        ahead.complete(body)
    return ahead


def told(journal: Journal, applier: Applier | None = None) -> tuple[list[int], list[object]]:
    """Seal a group; return the kinds of its records, and the bodies that a replay is told of."""
    group = journal.seal()
    assert group is not None
    scan = JournalScan(group.data, SEED, "test", group.file_number, group.number)
    replay = Told()
    applier = applier or Applier(replay)
    kinds = []
    while scan.next():
        kinds.append(int(scan.kind))
        applier.apply(scan.kind, scan.data, scan.start, scan.end)
    return kinds, [call[1] for call in replay.calls if call[0] == "publish"]


def test_a_message_refers_to_its_body_and_is_told_with_it() -> None:
    journal = Journal(SEED)
    ahead = written(journal)
    sent = message(BODY)
    journal.target(1, 5)
    journal.publish(sent)
    ahead.end()
    kinds, found = told(journal)
    assert kinds == [BODY_PART] * 10 + [PUBLISH_IN_PARTS]
    assert found == [content(sent)]
    assert journal.bodies_open == 0


def test_a_body_may_span_groups_and_others_are_written_between() -> None:
    journal = Journal(SEED)
    replay = Told()
    applier = Applier(replay)
    sent = message(BODY)
    ahead = BodyAhead(journal, PIECE_BYTES)
    other = BodyAhead(journal, PIECE_BYTES)
    sizes = []
    for start in range(0, len(BODY), PIECE_BYTES):
        for body in (ahead, other):
            body.write(BODY[start : start + PIECE_BYTES])
        sizes.append(int(journal.unsynced_bytes))
        told(journal, applier)
        journal.synced(journal.group - 1)
    assert max(sizes) < 3 * PIECE_BYTES
    for body in (other, ahead):
        body.complete(sent.body)
        journal.target(1, 5)
        journal.publish(sent)
        body.end()
    told(journal, applier)
    assert replay.calls == [("publish", content(sent), [(1, 5)])] * 2


def test_small_pieces_are_gathered_in_one_record() -> None:
    journal = Journal(SEED)
    ahead = BodyAhead(journal)
    for number in range(100):
        ahead.write(b"%030d" % number)
    body = b"".join(b"%030d" % number for number in range(100))
    ahead.complete(body)
    journal.target(1, 5)
    journal.publish(message(body))
    ahead.end()
    assert told(journal) == ([BODY_PART, PUBLISH_IN_PARTS], [content(message(body))])


def _another(journal: Journal, sent: bytes) -> None:
    journal.target(1, 5)
    journal.publish(message(sent + b"another"))


def _moved(journal: Journal, sent: bytes) -> None:
    journal.target(1, 5)
    journal.move(2, 9, message(sent))


def _in_tx(journal: Journal, sent: bytes) -> None:
    journal.begin_tx()
    journal.target(1, 5)
    journal.publish(message(sent))
    journal.end_tx()


@pytest.mark.parametrize(("append", "kind"), [(_another, PUBLISH), (_moved, MOVE), (_in_tx, TX)])
def test_other_records_have_their_bodies_and_the_parts_are_dropped(
    append: Callable[[Journal, bytes], None], kind: int
) -> None:
    journal = Journal(SEED)
    ahead = written(journal)
    append(journal, BODY)
    ahead.end()
    kinds, found = told(journal)
    assert kinds == [BODY_PART] * 10 + [kind, BODY_PART]
    assert len(found) == 1


def test_only_one_record_refers_to_a_body() -> None:
    journal = Journal(SEED)
    ahead = written(journal)
    sent = message(BODY)
    for sequence in (5, 6):
        journal.target(1, sequence)
        journal.publish(sent)
    ahead.end()
    kinds, found = told(journal)
    assert kinds == [BODY_PART] * 10 + [PUBLISH_IN_PARTS, PUBLISH]
    assert found == [content(sent)] * 2


@pytest.mark.parametrize("after", [0, 5])
def test_a_message_that_a_checkpoint_interrupted_has_its_body(after: int) -> None:
    journal = Journal(SEED)
    ahead = BodyAhead(journal, PIECE_BYTES)
    for number, start in enumerate(range(0, len(BODY), PIECE_BYTES)):
        if number == after:
            journal.roll()
        ahead.write(BODY[start : start + PIECE_BYTES])
    ahead.complete(BODY)
    journal.target(1, 5)
    journal.publish(message(BODY))
    ahead.end()
    kinds, found = told(journal)
    assert kinds == [BODY_PART] * after + [PUBLISH] + [BODY_PART] * (after > 0)
    assert found == [content(message(BODY))]


def test_a_checkpoint_separates_no_message_from_its_body() -> None:
    journal = Journal(SEED)
    ahead = written(journal, complete=False)
    told(journal)
    ahead.complete(BODY)
    journal.target(1, 5)
    journal.publish(message(BODY))
    ahead.end()
    replay_from = journal.roll()
    journal.checkpoint(1)
    before, after = journal.seal(), journal.seal()
    assert before is not None
    assert after is not None
    assert before.number < replay_from == after.number
    assert before.file_number < after.file_number


def test_bodies_of_an_earlier_run_are_dropped_at_the_start_of_the_next() -> None:
    journal = Journal(SEED)
    number = journal.new_body()
    journal.body_part(number, 0, BODY)
    journal.define("start", {"version": "test"})
    journal.body_part(number, len(BODY), BODY)
    journal.target(1, 5)
    sent = message(2 * BODY)
    ahead = BodyAhead(journal)
    ahead.number, ahead.body = number, sent.body
    journal.ahead = ahead
    journal.publish(sent)
    group = journal.seal()
    assert group is not None
    scan = JournalScan(group.data, SEED, "test", group.file_number, group.number)
    applier = Applier(Told())
    while scan.next():
        applier.apply_scanned(scan)
    assert [damage.what for damage in scan.damages] == [
        f"a record of kind {PUBLISH_IN_PARTS}: a part of the message's body is missing"
    ]


# -- on disk ---------------------------------------------------------------------------------------


def a_store(*, acked: bool = False, last: bool = False) -> Image:
    """Return a directory with a message in parts in several groups, between two others, or last."""
    store = Store(RecordingDisk())
    store.define_queue(1, "q")
    store.publish(message(b"before"), 1)
    ahead = BodyAhead(store.journal, PIECE_BYTES)
    for start in range(0, len(BODY), PIECE_BYTES):
        ahead.write(BODY[start : start + PIECE_BYTES])
        store.sync()
    ahead.complete(BODY)
    store.publish(message(BODY), 1)
    ahead.end()
    store.sync()
    if acked:
        store.ack(1, 1, 1)
    if not last:
        store.publish(message(b"after"), 1)
        store.sync()
    assert isinstance(store.disk, RecordingDisk)
    return store.disk.image()


def bodies(store: Store) -> list[bytes]:
    """Return the bodies of a queue's messages, in order."""
    live = store.state.queues[1].live
    return [live[sequence].body for sequence in sorted(live)]


def harmed(image: Image, place: int) -> Image:
    """Return the directory with a byte changed in its journal."""
    data = bytearray(image.files[journal_path(1)])
    data[place] ^= 0x40
    return Image(image.files | {journal_path(1): bytes(data)}, set(image.folders))


def test_a_start_finds_the_message_whole() -> None:
    store = Store(RecordingDisk(a_store()))
    assert bodies(store) == [b"before", BODY, b"after"]
    assert (store.report.damages, store.report.torn) == ([], [])


@pytest.mark.parametrize("piece", [0, 5, 9])
def test_a_damaged_part_loses_its_message_and_nothing_else(piece: int) -> None:
    image = a_store()
    place = image.files[journal_path(1)].find(BODY[piece * PIECE_BYTES :][:200])
    disk = RecordingDisk(harmed(image, place))
    store = Store(disk)
    assert bodies(store) == [b"before", b"after"]
    assert store.report.lost_records == 1
    assert [int(damage.kind) for damage in store.report.damages if damage.records] == [
        PUBLISH_IN_PARTS
    ]
    again = Store(RecordingDisk(disk.image()))
    assert (again.report.damages, len(again.report.known)) == ([], len(store.report.damages))
    survey = Survey(RecordingDisk(harmed(image, place)))
    for _ in survey.run():
        pass
    assert survey.lost == 1


@pytest.mark.parametrize("piece", [0, 5, 9])
def test_a_part_of_the_last_confirmed_message_is_damaged(piece: int) -> None:
    """No later group says that the message's record was durable, but one says so of the part's."""
    image = a_store(last=True)
    place = image.files[journal_path(1)].find(BODY[piece * PIECE_BYTES :][:200])
    disk = RecordingDisk(harmed(image, place))
    again = Store(disk)
    assert bodies(again) == [b"before"]
    assert (again.report.lost_records, again.report.torn) == (1, [])
    survey = Survey(RecordingDisk(harmed(image, place)))
    for _ in survey.run():
        pass
    assert (survey.lost, survey.torn) == (1, [])


def test_a_damaged_part_of_a_consumed_message_loses_nothing() -> None:
    image = a_store(acked=True)
    place = image.files[journal_path(1)].find(BODY[:200])
    store = Store(RecordingDisk(harmed(image, place)))
    assert bodies(store) == [b"before", b"after"]
    assert store.report.lost_records == 0


def test_a_salvage_has_the_message_and_a_dump_names_its_parts() -> None:
    disk = RecordingDisk(a_store())
    survey = Survey(disk, keep=True)
    for _ in survey.run():
        pass
    assert (survey.damages, survey.torn) == ([], [])
    target = RecordingDisk()
    for _ in write_salvage(target, Salvage(survey), bytes(reversed(UUID)), NOW):
        pass
    assert bodies(Store(target)) == [b"before", BODY, b"after"]
    dumped = list(Dump(disk, survey.identity.seed or 0).journal())
    parts = [fields for fields in dumped if fields["kind"] == "body_part"]
    assert [fields["offset"] for fields in parts] == list(range(0, len(BODY), PIECE_BYTES))
    assert len({fields["body_number"] for fields in parts}) == 1
    [whole] = [fields for fields in dumped if fields["kind"] == "publish_in_parts"]
    assert whole["body"] == BODY


def test_kinds_are_as_before() -> None:
    """The numbers of kinds on disk never change."""
    assert (DEFINE, PUBLISH, BODY_PART, PUBLISH_IN_PARTS) == (1, 3, 16, 17)
