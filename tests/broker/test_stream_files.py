"""Blocks of streams in files: when they go there, what stays in memory, and how they are found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker.scheduler.effects import ChunkReader
from leveret.broker.stream.stream import Stream
from leveret.clock import ManualClock
from leveret.limits import CHUNK_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from leveret.names import Name
from leveret.store.disk import Disk
from leveret.store.disks.recording import RecordingDisk
from leveret.store.journal.files import journal_path
from leveret.store.segments.segments import ChunkRef
from leveret.store.survey.salvage import Salvage, write_salvage
from leveret.store.survey.survey import Survey
from support.node.core import UUID, Node, Peer
from support.wire.raw_codec import Typed, decode_properties, method, publish

STREAM = {"x-queue-type": "stream"}


def opened(node: Node, page_bytes: int = 20, **arguments: Any) -> Peer:
    """A connection that declared the stream `s`, whose blocks have so many bytes."""
    node.core.memory.page_bytes = page_bytes
    peer = node.connect()
    told = {name.replace("_", "-"): value for name, value in arguments.items()}
    peer.declare("s", arguments=STREAM | told)
    return peer


def stream(node: Node) -> Stream:
    """The stream `s`."""
    queue = node.vhost.queues.existing(Name("s"), None)
    assert isinstance(queue, Stream)
    return queue


def put(peer: Peer, first: int, end: int, **values: Any) -> None:
    """Publish numbers as messages of 6 bytes to the stream and sync."""
    peer.send(*[message(number, **values) for number in range(first, end)])
    peer.node.sync()


def message(number: int, **values: Any) -> bytes:
    """A publish of 6 bytes of body and properties."""
    return publish(1, "", "s", b"%03d" % number, **({"delivery_mode": 2} | values))


def consume(node: Node, offset: Any = "first", prefetch: int = 1000) -> Peer:
    """A new connection that consumes the stream from `offset`."""
    reader = node.connect()
    reader.call(1, "basic.qos", prefetch_count=prefetch)
    reader.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": offset})
    return reader


def numbers(reader: Peer) -> list[int]:
    """The bodies that came, as numbers."""
    return [int(body) for body in reader.bodies()]


def forget(node: Node) -> None:
    """Let go of all blocks that files have."""
    for block in list(node.core.stream_cache.blocks):
        node.core.stream_cache.drop(block)


def harm(disk: Disk, path: str, position: int) -> None:
    """Change one byte of a file."""
    file = disk.open(path)
    data = bytearray(file.read(0, file.size()))
    data[position] ^= 1
    file.truncate(0)
    file.append([bytes(data)])
    file.close()


def in_memory(node: Node) -> list[int]:
    """The first offsets of the blocks that are in memory."""
    return [int(block.first) for block in stream(node).blocks if block.messages is not None]


def in_files(node: Node) -> list[int]:
    """The first offsets of the blocks that have a place in a file."""
    return [int(block.first) for block in stream(node).blocks if block.ref is not None]


# -- going there -----------------------------------------------------------------------------------


def test_a_full_block_goes_to_a_file_at_once(node: Node) -> None:
    put(opened(node), 0, 8)
    assert in_files(node) == [0, 3]
    assert [block.written for block in stream(node).blocks] == [True, True, False]
    assert node.core.memory.unchunked_bytes == 12


def test_what_files_have_need_not_stay_in_memory(node: Node) -> None:
    put(opened(node), 0, 8)
    assert in_memory(node) == [0, 3, 6]
    forget(node)
    assert in_memory(node) == [6]
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (2, 12)
    assert numbers(consume(node)) == list(range(8))
    assert in_memory(node) == [0, 3, 6]
    assert (node.core.memory.held_messages, node.core.memory.held_bytes) == (8, 48)


def test_memory_is_bounded_whatever_the_length(node: Node) -> None:
    peer = opened(node)
    node.core.stream_cache.bytes_max = 4 * (18 + 3 * MESSAGE_OVERHEAD_BYTES)
    put(peer, 0, 400)
    assert node.core.memory.held_messages == 4 * 3 + 1
    assert numbers(consume(node)) == list(range(400))
    assert node.core.memory.held_messages == 4 * 3 + 1
    # The newest ones and those read last are there.
    assert in_memory(node) == [387, 390, 393, 396, 399]


def test_what_files_have_raises_no_alarm() -> None:
    """Else publishers would be blocked by what nobody lets go."""
    node = Node(memory_bytes_max=400_000)
    peer = opened(node, 600)
    put(peer, 0, 3000)
    assert numbers(consume(node, prefetch=5000)) == list(range(3000))
    assert node.core.stream_cache.bytes <= 50_000
    assert not node.broker.memory_alarm


def test_readers_of_one_place_share_a_block_and_it_is_read_once(node: Node) -> None:
    peer = opened(node)
    put(peer, 0, 30)
    forget(node)
    node.hold_reads = True
    readers = [consume(node) for _ in range(5)]
    assert len(node.wanted) == 2  # The first block, and the one behind it.
    node.hold_reads = False
    node.read_wanted()
    node.run()
    for reader in readers:
        assert numbers(reader) == list(range(30))


def test_many_readers_at_many_places_all_come_to_the_end(node: Node) -> None:
    """More of them than blocks fit into memory."""
    peer = opened(node)
    node.core.stream_cache.bytes_max = 2 * (18 + 3 * MESSAGE_OVERHEAD_BYTES)
    put(peer, 0, 60)
    readers = {start: consume(node, start, prefetch=2) for start in range(0, 60, 5)}
    got: dict[int, list[int]] = {start: [] for start in readers}
    for _ in range(40):
        for start, reader in readers.items():
            got[start] += numbers(reader)
            reader.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
            assert len(node.core.stream_cache.blocks) <= 2
    assert got == {start: list(range(start, 60)) for start in readers}


def test_a_reader_without_credit_takes_no_share_from_the_others(node: Node) -> None:
    put(opened(node, CHUNK_BYTES_MAX), 0, 900)
    for _ in range(50):
        assert numbers(consume(node, prefetch=1)) == [0]
    fast = node.connect()
    fast.call(1, "basic.qos", prefetch_count=1000)
    queue = stream(node)
    fast.call(1, "basic.consume", queue="s", arguments={"x-stream-offset": "first"})
    assert len(fast.take()) == 900
    put(node.connect(), 900, 950)
    fast.reads = False
    assert queue.dispatch(100) is False
    assert queue.delivered == 50 + 950


def test_a_block_that_is_not_synced_is_written_and_not_seen(node: Node) -> None:
    peer = opened(node)
    reader = consume(node)
    peer.send(*[message(number) for number in range(7)])
    assert in_files(node) == [0, 3]
    assert stream(node).blocks[0].written
    forget(node)
    assert in_memory(node) == [0, 3, 6]
    assert numbers(reader) == []
    assert numbers(consume(node)) == []
    node.sync()
    assert numbers(reader) == list(range(7))
    forget(node)
    assert in_memory(node) == [6]


def test_a_block_is_seen_before_it_is_written(node: Node) -> None:
    peer = opened(node)
    node.hold_spill = True
    put(peer, 0, 7)
    forget(node)
    assert in_memory(node) == [0, 3, 6]
    assert numbers(consume(node)) == list(range(7))
    node.hold_spill = False
    node.write_spilled()
    forget(node)
    assert in_memory(node) == [6]
    assert numbers(consume(node)) == list(range(7))


def test_a_reader_inside_a_block_that_leaves_memory_goes_on(node: Node) -> None:
    put(opened(node, 100), 0, 10)
    reader = consume(node, prefetch=1)
    got = numbers(reader)
    stream(node).settle()
    node.sync()
    for tag in range(1, 10):
        forget(node)
        reader.send(method(1, "basic.ack", delivery_tag=tag))
        got += numbers(reader)
    assert got == list(range(10))


def test_a_stream_that_is_deleted_while_it_is_written_leaves_nothing(node: Node) -> None:
    peer = opened(node)
    node.hold_spill = True
    put(peer, 0, 7)
    peer.call(1, "queue.delete", queue="s")
    node.hold_spill = False
    node.write_spilled()
    node.sync()
    core = node.core
    assert (core.memory.held_bytes, core.memory.held_messages, core.memory.unchunked_bytes) == (
        0,
        0,
        0,
    )
    assert core.spill.use.bytes_live == 0
    assert not core.stream_cache.blocks


def test_what_retention_takes_while_it_is_written_leaves_nothing(node: Node) -> None:
    peer = opened(node, x_max_length_bytes=24)
    node.hold_spill = True
    put(peer, 0, 30)
    assert stream(node).first_offset == 27
    node.hold_spill = False
    node.write_spilled()
    node.sync()
    assert node.core.memory.held_messages == 3
    assert node.core.spill.use.bytes_live == 0
    again = Node(RecordingDisk(node.image()))
    assert numbers(consume(again)) == [27, 28, 29]


# -- after a start ---------------------------------------------------------------------------------


def test_a_start_reads_no_chunk_that_a_snapshot_names(node: Node) -> None:
    """All but the numbers of the blocks stays where it is."""
    put(opened(node), 0, 40, delivery_mode=1)
    node.take_checkpoint()
    image = node.stop()
    again = Node(RecordingDisk(image))
    assert in_memory(again) == [40]
    assert again.report.records < 20
    assert (stream(again).first_offset, stream(again).visible_end) == (0, 40)
    assert stream(again).ready_bytes() == 240
    assert numbers(consume(again)) == list(range(40))


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_a_damaged_chunk_is_filled_from_the_journal_that_has_it_still(
    node: Node, mode: int
) -> None:
    put(opened(node), 0, 10, delivery_mode=mode)
    image = node.image()
    for position in (5, 130, -8):
        disk = RecordingDisk(image)
        ref = stream(node).blocks[1].ref
        assert ref is not None
        harm(disk, ref.path, int(ref.position) + position % int(ref.size))
        again = Node(disk)
        assert len(again.report.damages) == 1
        assert numbers(consume(again)) == list(range(10))
        # It lies in a chunk of its own now.
        assert 3 in in_files(again)
        third = Node(RecordingDisk(again.image()))
        assert numbers(consume(third)) == list(range(10))


def test_the_journal_that_is_damaged_before_a_chunk_costs_what_no_chunk_has(node: Node) -> None:
    peer = opened(node)
    put(peer, 0, 3)
    put(peer, 3, 4)
    for number in range(4, 11):
        put(peer, number, number + 1)
    disk = RecordingDisk(node.image())
    file = disk.open(journal_path(1))
    data = file.read(0, file.size())
    file.close()
    harm(disk, journal_path(1), data.index(b"010") + 1)
    again = Node(disk)
    assert numbers(consume(again)) == list(range(10))
    put(again.connect(), 11, 13)
    assert numbers(consume(again)) == [*range(10), 11, 12]


def test_sizes_are_the_same_after_a_start(node: Node) -> None:
    put(opened(node, 40, x_max_length_bytes=200), 0, 100, headers={"a": "b"}, delivery_mode=1)
    node.take_checkpoint()
    put(node.connect(), 100, 103)
    before = int(stream(node).ready_bytes()), int(stream(node).first_offset)
    again = Node(RecordingDisk(node.stop()))
    assert (int(stream(again).ready_bytes()), int(stream(again).first_offset)) == before


# -- damage that is found when a block is read -----------------------------------------------------


def harmed(node: Node, place: int, position: int, *, journaled: bool = False) -> None:
    """Store the stream and change a byte of one chunk, whose messages no journal has any more."""
    stream(node).settle()
    node.sync()
    if not journaled:
        remove_journal(node)
    forget(node)
    ref = stream(node).blocks[place].ref
    assert ref is not None
    harm(node.disk, ref.path, int(ref.position) + position % int(ref.size))


def remove_journal(node: Node) -> None:
    """Remove all files of the journal, as checkpoints do one day."""
    for name in node.disk.list("journal"):
        node.disk.unlink(f"journal/{name}")


@pytest.mark.parametrize("position", [5, 50, 126, -1], ids=["magic", "header", "checksum", "body"])
def test_a_damaged_chunk_is_read_from_the_journal(node: Node, position: int) -> None:
    put(opened(node), 0, 10)
    harmed(node, 1, position, journaled=True)
    assert numbers(consume(node)) == list(range(10))
    assert node.core.damaged == []


@pytest.mark.parametrize("position", [5, 50, 126], ids=["magic", "header", "checksum"])
def test_a_damaged_chunk_is_skipped_and_told(node: Node, position: int) -> None:
    put(opened(node), 0, 10)
    harmed(node, 1, position)
    assert numbers(consume(node)) == [0, 1, 2, 6, 7, 8, 9]
    assert len(node.core.damaged) == 1
    assert node.core.damaged[0].what.startswith("stream 's': <chunk 3-5 at ")
    # The block stays in memory: it is not read, and told of, for each reader.
    assert numbers(consume(node)) == [0, 1, 2, 6, 7, 8, 9]
    assert len(node.core.damaged) == 1


def test_a_damaged_record_is_skipped_alone(node: Node) -> None:
    peer = opened(node, 40)
    peer.send(*[publish(1, "", "s", b"%08d" % number, delivery_mode=2) for number in range(10)])
    node.sync()
    harmed(node, 1, -1)
    assert numbers(consume(node)) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert len(node.core.damaged) == 1
    assert "the messages 5" in node.core.damaged[0].what


def test_a_chunk_of_which_bytes_are_missing_is_skipped(node: Node) -> None:
    put(opened(node, 100), 0, 7)
    stream(node).settle()
    put(node.connect(), 7, 10)
    remove_journal(node)
    forget(node)
    ref = stream(node).blocks[0].ref
    assert ref is not None
    file = node.disk.open(ref.path)
    file.truncate(int(ref.size) // 2)
    file.close()
    assert numbers(consume(node)) == [7, 8, 9]
    assert len(node.core.damaged) == 1


# -- finding a time --------------------------------------------------------------------------------


def test_a_time_is_found_to_the_message_in_memory_and_in_files(node: Node) -> None:
    peer = opened(node)
    for number in range(20):
        put(peer, number, number + 1)
        node.tick(10)
    start = node.clock.wall_ms() - 200
    for _ in range(2):
        got = [int(stream(node).offset_at(start + 10 * number)) for number in range(22)]
        assert got == [*range(20), 20, 20]
        assert stream(node).offset_at(start - 5) == 0
        assert stream(node).offset_at(start + 41) == 5
        forget(node)
    assert numbers(consume(node, Typed("T", start // 1000))) == list(range(20))


def test_a_time_is_found_by_reading_one_chunk(node: Node) -> None:
    peer = opened(node)
    for number in range(300):
        put(peer, number, number + 1)
        node.tick(1)
    forget(node)
    reader = node.core.reader = Counting(node.core.reader)
    assert stream(node).offset_at(node.clock.wall_ms() - 150) == 150
    assert reader.count == 1


class Counting(ChunkReader):
    """Counts what is read."""

    def __init__(self, reader: ChunkReader) -> None:
        super().__init__()
        self.reader = reader
        self.count = 0

    def read(self, owner: int, ref: ChunkRef, levels: int) -> bytes:
        """Count and read."""
        self.count += 1
        return self.reader.read(owner, ref, levels)


def test_a_time_in_a_damaged_chunk_is_where_it_begins(node: Node) -> None:
    peer = opened(node)
    for number in range(10):
        put(peer, number, number + 1)
        node.tick(10)
    harmed(node, 1, 50)
    assert stream(node).offset_at(node.clock.wall_ms() - 50) == 3
    assert stream(node).end_at(node.clock.wall_ms() - 50) == 6


def test_what_is_not_seen_has_no_time(node: Node) -> None:
    peer = opened(node)
    put(peer, 0, 2)
    node.tick(10)
    peer.send(*[message(number) for number in range(2, 9)])
    assert stream(node).offset_at(node.clock.wall_ms()) == 2
    assert stream(node).end_at(node.clock.wall_ms() + 1) == 2
    node.sync()
    assert stream(node).end_at(node.clock.wall_ms() + 1) == 9
    assert stream(node).offset_at(node.clock.wall_ms()) == 2
    assert stream(node).offset_at(node.clock.wall_ms() + 1) == 9


jumps = st.lists(st.integers(-500, 500), min_size=1, max_size=6)


@settings(max_examples=40)
@given(jumps, st.integers(0, 3), st.lists(st.integers(-1600, 1600), max_size=8))
def test_a_time_is_found_though_the_clock_was_set_between_starts(
    by: list[int], retained: int, asked: list[int]
) -> None:
    """Against a look at each message, after retention too."""
    clock = ManualClock()
    clock.advance(10_000)
    times: list[int] = []
    node = Node(clock=clock)
    opened(node, 14)
    for jump in by:
        clock = ManualClock()
        clock.advance(10_000 + jump)
        node = Node(RecordingDisk(node.image()), clock=clock)
        node.core.memory.page_bytes = 14
        peer = node.connect()
        for _ in range(5):
            put(peer, len(times), len(times) + 1)
            times.append(node.clock.wall_ms())
            node.tick(7)
    queue = stream(node)
    queue.retention.bytes_max = 30 * (4 - retained)
    queue.retain()
    forget(node)
    base = times[0]
    for shift in asked:
        wanted = base + shift
        found = [
            number
            for number in range(int(queue.first_offset), len(times))
            if times[number] >= wanted
        ]
        assert queue.offset_at(wanted) == (found[0] if found else len(times))
        first = int(queue.first_offset)
        before = [number for number in range(first, len(times)) if times[number] < wanted]
        assert queue.end_at(wanted) == (before[-1] + 1 if before else first)


# -- segments --------------------------------------------------------------------------------------


def first(node: Node) -> int:
    """The first offset, as a reader is told it."""
    got = consume(node).take()
    return int(decode_properties(got[0].properties)["headers"]["x-stream-offset"])


def test_whole_segments_go_by_bytes(node: Node) -> None:
    peer = opened(node, x_max_length_bytes=120, x_stream_max_segment_size_bytes=54)
    begins = []
    for number in range(60):
        put(peer, number, number + 1)
        begins.append(first(node))
    # Three blocks of three messages of 6 bytes; more than 120 bytes are not kept.
    assert sorted(set(begins)) == [0, 9, 18, 27, 36, 45]
    assert begins.index(9) == 20


def test_whole_segments_go_by_age(node: Node) -> None:
    peer = opened(node, x_max_age="10s", x_stream_max_segment_size_bytes=36)
    for number in range(0, 15, 3):
        put(peer, number, number + 3)
        node.tick(4000)
    # Of the first segment the first message is 20 s old, the last one 16 s; of the second 12 and 8.
    assert first(node) == 6
    node.tick(4000)
    assert first(node) == 12
    node.tick(1_000_000)
    # The newest segment stays.
    assert first(node) == 12


def test_what_is_too_old_goes_though_few_messages_come(node: Node) -> None:
    """They would fit into one block, which would never be full."""
    peer = opened(node, CHUNK_BYTES_MAX, x_max_age="10s")
    for number in range(60):
        put(peer, number, number + 1)
        node.tick(1000)
        oldest = node.clock.wall_ms() - 1000 * (number + 1 - first(node))
        assert node.clock.wall_ms() - oldest <= 22_000
    assert first(node) >= 38
    assert len(stream(node).blocks) <= 4


def test_a_segment_larger_than_the_stream_keeps_it_whole(node: Node) -> None:
    peer = opened(node, x_max_length_bytes=1, x_stream_max_segment_size_bytes=10_000)
    put(peer, 0, 50)
    assert first(node) == 0


def test_segments_are_the_same_after_a_start(node: Node) -> None:
    peer = opened(node, x_max_length_bytes=120, x_stream_max_segment_size_bytes=54)
    put(peer, 0, 18)
    again = Node(RecordingDisk(node.stop()))
    again.core.memory.page_bytes = 20
    put(again.connect(), 18, 30)
    assert first(again) == 18


# -- the tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_the_tools_know_what_lies_where(node: Node, checkpoints: int) -> None:
    """A check counts each message once, and a salvage copies all of them."""
    peer = opened(node, x_max_length_bytes=200)
    put(peer, 0, 60, delivery_mode=1)
    for _ in range(checkpoints):
        node.take_checkpoint()
        put(peer, 60, 65)
    expected = numbers(consume(node))
    disk = RecordingDisk(node.image())
    survey = Survey(disk, keep=True)
    for _ in survey.run():
        pass
    assert (survey.damages, survey.lost) == ([], 0)
    (holding,) = survey.holdings.living()
    in_journal, _ = holding.journal_only()
    assert int(holding.chunk_messages) + in_journal == len(expected)
    saved = RecordingDisk()
    salvage = Salvage(survey)
    for _ in write_salvage(saved, salvage, UUID, 0):
        pass
    again = Node(saved)
    assert numbers(consume(again)) == expected
    assert stream(again).next_offset == stream(node).next_offset
    put(again.connect(), 70, 100)
    assert numbers(consume(again))[-1] == 99
