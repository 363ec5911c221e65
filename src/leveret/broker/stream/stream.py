"""The stream: messages stay, each at an offset, and any number of consumers read them.

Messages lie in blocks of at most a chunk's size.  The newest block is in memory; one that is full,
or that a checkpoint closes, goes to a file as a chunk and is read back when somebody wants it, so
that a stream's length costs no memory but some 250 bytes for each block.  Acks are credit and
remove nothing; retention removes blocks from the front.

Invariants: only synced offsets are visible; offsets have no gaps but where damage took some; all
blocks but the last have a place in a file; what is not seen yet is in memory.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.backlog.damage import open_chunk, report_messages
from leveret.broker.core.core import Core
from leveret.broker.queue.consumer import Consumer
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_ALL, Target
from leveret.broker.scheduler.costs import (
    CHUNK_BYTES_PER_COST,
    LOOKED_AT_PER_COST,
    VISITED_PER_COST,
)
from leveret.broker.scheduler.effects import ChunkWanted, SyncWaiter
from leveret.broker.scheduler.task import WAIT
from leveret.broker.stream.block import Block, first_of
from leveret.broker.stream.filter import stream_filter
from leveret.broker.stream.offsets import StreamOffsets
from leveret.broker.stream.reader import StreamReader, stream_entry
from leveret.broker.stream.retention import Retention
from leveret.broker.stream.time import block_in_time, end_in_time, offset_in_time
from leveret.broker.values.arguments import age_seconds, int_argument, is_age
from leveret.broker.values.queue_attributes import QueueAttributes
from leveret.chunk import ChunkBuilder, RecordDamaged
from leveret.errors import NotImplementedFault, PreconditionFailed
from leveret.limits import CHUNK_RECORDS_MAX, SUPER_STREAM_PARTITIONS_KEPT_MAX
from leveret.message import Message
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillOwner
from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from leveret.broker.stream.group import StreamGroup

#: No message is younger; what is later on the wire means the same and must fit 64 bits in ms.
_SECONDS_MAX: Final = 1 << 50

#: No stream becomes so long; a number on the wire may exceed 64 bits with a sign.
_OFFSET_MAX: Final = 1 << 60


#: What it costs to drop blocks from the front beside these, or to close the last block beside its
#: bytes, which are written.
_RETAINED: Final = 4


#: What tells a stream's id, in its record and as the kind of a record that tells it alone.
STREAM_ID_FIELD: Final = "stream_id"

#: The argument by which a consumer says which stream of the name it means, and the one by which it
#: asks that: the consumer tag that the broker makes ends in the id then.
STREAM_ID: Final = "x-stream-id"
TELL_STREAM_ID: Final = "x-stream-tell-id"


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """Something that waits at the end of a stream for more visible messages."""

    @abstractmethod
    def moved(self) -> None:
        """Continue: more may be visible, or the stream was deleted.  This is called once."""


@final
class Stream(Queue):
    """A queue of type `stream`."""

    def __init__(self, core: Core, queue_id: i64, name: str, arguments: dict[str, object]) -> None:
        super().__init__(core, queue_id, name, QueueAttributes(True, arguments=arguments))
        self.has_offsets = True
        self.adds_headers = True
        #: Which of all streams that ever had its name it is; it is told from them by that.
        self.stream_id = ""
        #: Its number as a partition of a super stream, from 0 on; -1 if it is not a partition.
        self.partition: i64 = min(
            int_argument(arguments, "x-super-stream-partition"), SUPER_STREAM_PARTITIONS_KEPT_MAX
        )
        self._entry = stream_entry(name) if self.partition >= 0 else b""
        #: The newest block, which is in memory and has no place in a file; `blocks` ends with it.
        self.last = Block(0)
        self.blocks: list[Block] = [self.last]
        self.first_offset: i64 = 0
        self.next_offset: i64 = 0
        #: Offsets below it are synced; readers see no more.
        self.visible_end: i64 = 0
        #: What each group of the journal that is not synced yet ends with: (group, next offset).
        self.unsynced: list[tuple[i64, i64]] = []
        #: Waits until what came last is synced; None once the stream is deleted.
        self.sync: StreamSync | None = StreamSync(self)
        self.size: i64 = 0
        #: The places of the consumers that have no name; groups of named ones have theirs.
        self.readers: dict[Consumer, StreamReader] = {}
        #: True while a task hands out to them one by one, and where another one must follow.
        self._serves = False
        self._serves_again = False
        self.offsets = StreamOffsets(self)
        #: Blocks that were written before their messages were synced: in memory until then.
        self.unseen: list[Block] = []
        #: Those that wait for more visible messages, each called once.
        self.watchers: list[StreamWatcher] = []
        self.retention = Retention()
        self.target = StreamTarget(self)
        self.configure(arguments)

    @property
    def kind(self) -> str:
        """Return `stream`."""
        return "stream"

    def own_entry(self) -> bytes:
        """Return the header with a partition's name."""
        return self._entry

    def definition(self, vhost: str) -> dict[str, object]:
        """Return the stream as its journal record holds it."""
        return {**super().definition(vhost), STREAM_ID_FIELD: self.stream_id}

    def configure(self, merged: dict[str, object]) -> None:
        """Take the stream's arguments as its policies have changed them."""
        super().configure(merged)
        self.retention.configure(merged)
        for group in self.offsets.groups.values():
            group.settings = self.settings

    # -- writing ----------------------------------------------------------------------------------

    def append(self, message: Message) -> i64:
        """Put `message` at the end and nothing else (recovery)."""
        block = self.last
        if block.count >= CHUNK_RECORDS_MAX or (
            block.count > 0 and block.size + message.size > self.core.memory.page_bytes
        ):
            block = self.begin_block(self.next_offset)
        block.add(message)
        self.size += message.size
        self.core.memory.begin_chunk(message.size)
        self.core.memory.hold(message.size)
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def begin_block(self, first: i64) -> Block:
        """Begin a block at the end, and have the one before it written."""
        share = self.target.share
        if share is not None:
            share.note()
        block = Block(first)
        self.add_block(block)
        return block

    def add_block(self, block: Block) -> None:
        """Put a block at the end, and have the one before it written."""
        last = self.last
        block.timestamp_before = max(last.timestamp_before, last.timestamp_max)
        if last.count == 0:
            self.blocks.pop()
        elif last.ref is None:
            self._spill(last)
        self.blocks.append(block)
        self.last = block

    def settle(self) -> None:
        """Write all messages that have arrived, for a checkpoint."""
        if self.last.count > 0:
            self.begin_block(self.next_offset)

    def _spill(self, block: Block) -> None:
        """Write a block to a segment file; it may leave the memory once it is written.

        The record that says so comes a group after the block's messages (`SpillRecord` says why),
        so a crash finds either the messages in the journal, or both, or the chunk.
        """
        core = self.core
        chunk = block.build(ChunkBuilder(self.queue_id, True), block.first, block.end)
        ref = core.spill.add(chunk, BlockSpill(self, block), False)
        block.ref = ref
        core.spill.use.lives(ref, ref.count)
        core.memory.end_chunk(block.size)

    def block_written(self, block: Block, ref: ChunkRef) -> None:
        """Journal where a block was written; it need not stay in memory."""
        block.written = True
        if self.gone(block):
            return
        self.core.journal.later(BlockRecord(self, block, ref))
        self._cache(block)

    def _cache(self, block: Block) -> None:
        """Put a written block into the cache once it is seen; until then it stays in memory."""
        if block.end > self.visible_end:
            self.unseen.append(block)
        elif not self.gone(block):
            self.core.stream_cache.put(block)

    def show(self, group: i64) -> None:
        """Show what the groups up to `group` hold, which are synced, then let retention look."""
        unsynced = self.unsynced
        while unsynced and unsynced[0][0] <= group:
            self.visible_end = unsynced.pop(0)[1]
        if unsynced:
            self._wait_for_sync()
        unseen = self.unseen
        self.unseen = []
        for block in unseen:
            self._cache(block)
        self.retain()
        self._schedule_all()
        self._notify_watchers()

    def _wait_for_sync(self) -> None:
        """Have `show` called when the first group that is not synced is."""
        if self.sync is not None:
            self.core.syncs.wait(self.sync, self.unsynced[0][0])

    def note_published(self, group: i64) -> None:
        """Note that the messages up to the end are visible when `group` is synced."""
        unsynced = self.unsynced
        if unsynced and unsynced[-1][0] == group:
            unsynced[-1] = (group, self.next_offset)
        else:
            unsynced.append((group, self.next_offset))
            self._wait_for_sync()

    def retain(self) -> None:
        """Drop what exceeds the retention: of very much, some with each call."""
        if self.retention.closes(self.last, self.core.now_ms):
            self.core.scheduler.spent += _RETAINED + self.last.size // CHUNK_BYTES_PER_COST
            self.settle()
        blocks = self.blocks
        retention = self.retention
        core = self.core
        dropped = retention.over(blocks, self.size, self.visible_end, core.now_ms)
        core.scheduler.spent += retention.looked // VISITED_PER_COST
        if dropped > 0:
            core.scheduler.spent += _RETAINED
            front = blocks[:dropped]
            del blocks[:dropped]
            self.size -= retention.over_bytes
            self.first_offset = blocks[0].first
            core.journal.trim(self.queue_id, self.first_offset)
            core.scheduler.start(self._let_go(front, []))

    def gone(self, block: Block) -> bool:
        """Return whether a block does not belong to the stream any more."""
        return self.deleted or block.end <= self.first_offset

    def forget(self, block: Block) -> None:
        """Drop a block for good, which the stream counts no more."""
        core = self.core
        ref = block.ref
        if ref is None:
            core.memory.end_chunk(block.size)
        else:
            core.spill.use.lives(ref, -ref.count)
        core.stream_cache.drop(block)
        if block.messages is not None:
            block.messages = None
            core.memory.release_all(block.count, block.size)

    # -- blocks -----------------------------------------------------------------------------------

    def lag(self, offset: i64) -> i64:
        """Return how many visible messages come after those that a stored offset says are done."""
        return max(self.visible_end - max(offset, self.first_offset), 0)

    def place_of(self, offset: i64) -> i64:
        """Return the place of the block that holds `offset`, or of the next one after it.

        Behind the last block it is the number of blocks.
        """
        blocks = self.blocks
        place: i64 = max(bisect_right(blocks, int(offset), key=first_of) - 1, 0)
        return place if offset < blocks[place].end else place + 1

    def block_at(self, offset: i64) -> Block | None:
        """Return the block that holds `offset`, or the next one after it; None behind the last."""
        place = self.place_of(offset)
        if place == len(self.blocks) or self.blocks[place].count == 0:
            return None
        return self.blocks[place]

    def want(self, block: Block) -> None:
        """Ask the shell to read `block`, once."""
        ref = block.ref
        if not block.wanted and ref is not None:
            block.wanted = True
            self.core.wanted.append(BlockWanted(self, block, ref))

    def loaded(self, block: Block, data: bytes) -> None:
        """Take the chunk of `block` into memory for a while."""
        block.wanted = False
        if self.gone(block) or block.messages is not None:
            return
        block.messages = self._decoded(block, data)
        self.core.memory.hold_all(block.count, block.size)
        self.core.stream_cache.put(block)
        self._schedule_all()

    def _schedule_all(self) -> None:
        """Schedule the stream and its groups."""
        self.schedule()
        groups = self.offsets.groups
        if groups:
            self.core.scheduler.spent += len(groups) // LOOKED_AT_PER_COST
            for group in groups.values():
                group.schedule()

    def _decoded(self, block: Block, data: bytes) -> list[Message | None]:
        """Return the messages of a chunk; what is damaged is None, and reported."""
        messages: list[Message | None] = [None] * block.count
        ref = block.ref
        assert ref is not None
        chunk = open_chunk(self, ref, data, ref.count)
        if chunk is None:
            return messages
        broken: list[int] = []
        for index in range(chunk.count):
            try:
                messages[chunk.sequence(index) - block.first] = chunk.message(index)
            except RecordDamaged as record:
                broken.append(int(record.sequence))
        if broken:
            report_messages(self, ref, data, broken)
        return messages

    def next_number(self) -> i64:
        """Return the offset that the next message gets."""
        return self.next_offset

    # -- reading ----------------------------------------------------------------------------------

    def attach(self, consumer: Consumer, where: str) -> None:
        """Place a new consumer by its arguments.

        Raises: NotImplementedFault (540) without acks; PreconditionFailed (406) without prefetch,
        for an offset that is none, a filter that is none, or the id of another stream.
        """
        if consumer.no_ack:
            raise NotImplementedFault(f"automatic acknowledgement not supported by stream {where}")
        if consumer.prefetch_count <= 0 and consumer.channel.prefetch_count <= 0:
            raise PreconditionFailed(f"consumer prefetch count is not set for stream {where}")
        wanted = consumer.arguments.get(STREAM_ID, self.stream_id)
        if wanted != self.stream_id:
            raise PreconditionFailed(
                f"{where} was deleted and declared again: "
                f"its id is '{self.stream_id}', not '{wanted}'"
            )
        if consumer.queue is self:
            self.readers[consumer] = self.reader(consumer.arguments, where)

    def detach(self, consumer: Consumer) -> None:
        """Forget a consumer's place."""
        self.readers.pop(consumer, None)

    def reader(self, arguments: dict[str, object], where: str) -> StreamReader:
        """Return the place where a consumer with these arguments begins.

        Raises: PreconditionFailed (406).
        """
        wanted = arguments.get("x-stream-offset", "next")
        reader = StreamReader(self, self.start_offset(wanted, where))
        reader.select(stream_filter(arguments, where), self._time_of(wanted))
        return reader

    def start_offset(self, wanted: object, where: str) -> i64:
        """Return the offset at which a consumer starts that asked for `wanted`.

        That of a time may lie before it, by less than a block: `StreamReader.select`.

        Raises: PreconditionFailed (406).
        """
        if wanted == "first":
            return self.first_offset
        if wanted == "next":
            return self.visible_end
        if wanted == "last":
            return max(self.visible_end - 1, self.first_offset)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            # A negative one counts from the end; it may be of any size.
            offset = wanted if wanted >= 0 else int(self.visible_end) + wanted
            return max(min(offset, _OFFSET_MAX), int(self.first_offset))
        time_ms = self._time_of(wanted)
        if time_ms is None:
            raise PreconditionFailed(f"invalid arg 'x-stream-offset' for {where}")
        return self._seen(block_in_time(self.blocks, time_ms), self.next_offset)

    def _time_of(self, wanted: object) -> i64 | None:
        """Return the time in ms that a wanted offset stands for; None where it is no time."""
        if isinstance(wanted, Timestamp):
            return min(wanted.seconds, _SECONDS_MAX) * 1000
        if isinstance(wanted, str) and is_age(wanted):
            return max(self.core.now_ms - age_seconds(wanted) * 1000, 0)
        return None

    def offset_at(self, timestamp_ms: i64) -> i64:
        """Return the offset of the first message taken at or after a time, else the visible end.

        It costs a search among the blocks and, for one in a file, a chunk that is read at once.
        """
        offset = offset_in_time(self.blocks, self.core.reader, self.queue_id, timestamp_ms)
        return self._seen(offset, self.next_offset)

    def end_at(self, timestamp_ms: i64) -> i64:
        """Return the offset after the last visible message taken before a time, else the first.

        It costs a look at each block behind it, and a chunk as for `offset_at`.
        """
        offset = end_in_time(self.blocks, self.core.reader, self.queue_id, timestamp_ms)
        return self._seen(offset, self.first_offset)

    def _seen(self, offset: i64 | None, otherwise: i64) -> i64:
        """Return an offset, or `otherwise` for None, as far as readers see the stream."""
        found: i64 = otherwise if offset is None else offset
        return max(min(found, self.visible_end), self.first_offset)

    def dispatch(self, limit: i64) -> bool:
        """Hand out up to `limit` messages, each consumer's share from its own place.

        A task comes to the consumers one by one; what is new meanwhile is handed out at its end.
        """
        if self._serves:
            self._serves_again = True
            return False
        readers = self.readers
        # Consumers without credit take no share from the others.
        ready = [consumer for consumer in readers if consumer.ready()]
        self.core.scheduler.spent += (len(readers) + len(ready)) // LOOKED_AT_PER_COST
        if len(ready) > 1:
            ready.reverse()
            self.core.scheduler.start(self._serve(ready, max(limit // len(ready), 1)))
            return False
        return len(ready) == 1 and readers[ready[0]].hand_out(ready[0], limit)

    def _serve(self, left: list[Consumer], share: i64) -> Iterator[int]:
        """Hand out a share to each consumer that is still there."""
        self._serves = True
        self._serves_again = False
        while left and not self.deleted:
            consumer = left.pop()
            reader = self.readers.get(consumer)
            if reader is not None and reader.hand_out(consumer, share):
                self._serves_again = True
            yield 1
        self._serves = False
        if self._serves_again:
            self.schedule()

    def watch(self, watcher: StreamWatcher) -> None:
        """Call `watcher` once when more may be seen, or the stream was deleted."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: StreamWatcher) -> None:
        """Call `watcher` no more."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def _notify_watchers(self) -> None:
        watchers = self.watchers
        self.watchers = []
        for watcher in watchers:
            watcher.moved()

    # -- what classic queues do with single messages ----------------------------------------------

    def ready_count(self) -> i64:
        """Return how many messages are visible."""
        return self.visible_end - self.first_offset

    def ready_bytes(self) -> i64:
        """Return the bytes of all messages."""
        return self.size

    def ack(self, sequence: i64, message: Message) -> None:
        """Acks are credit: the consumer can take more."""
        self.acked += 1
        self.schedule()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """A stream lets go of nothing; the credit returns."""
        self.ack(sequence, message)

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """A stream takes nothing back; the credit returns."""
        self.schedule()

    def purge(self) -> i64:
        """Refuse.  Raises: NotImplementedFault (540)."""
        raise NotImplementedFault(f"queue.purge is not supported by stream queue '{self.name}'")

    def drop(self) -> None:
        """Drop all blocks and all places of consumers."""
        blocks = self.blocks
        self.size = 0
        self.last = Block(self.next_offset)
        self.blocks = [self.last]
        self.core.memory.free_table_later(self.readers)
        self.readers = {}
        self.core.scheduler.start(self._let_go(blocks, self.offsets.drop()))
        self._notify_watchers()

    def _let_go(self, blocks: list[Block], groups: list[StreamGroup]) -> Iterator[int]:
        """Forget blocks that nobody finds any more, and groups that deliver nothing any more.

        Blocks in memory count for it until they are forgotten.
        """
        if self.partition >= 0:
            # All partitions of a super stream are deleted at once.
            yield WAIT
        while groups:
            group = groups.pop()
            count = len(group.consumers)
            group.drop()
            yield 1 + count // LOOKED_AT_PER_COST
        while blocks:
            block = blocks.pop()
            messages = block.messages
            self.forget(block)
            if messages is not None:
                # Those of a block are few, but a super stream has many partitions.
                self.core.memory.free_later(messages)
            yield 1

    def untie(self) -> None:
        """Let go of the parts that know the stream, which was dropped."""
        super().untie()
        self.sync = None


@final
class StreamTarget(Target):
    """The target of one stream, all of whose messages are journaled."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.core, stream.name, stream.queue_id, RECORDS_ALL)
        self._stream: Final = stream

    def publish(self, message: Message) -> i64:
        """Append `message`; return its offset.  It is seen when its group is synced."""
        stream = self._stream
        offset = stream.append(message)
        self.published += 1
        stream.note_published(self.core.journal.group)
        return offset

    def takes_now(self) -> bool:
        """Return whether a consumer has credit; it gets the message when that is synced."""
        asked: i64 = 0
        for consumer in self._stream.readers:
            if consumer.ready():
                return True
            asked += 1
        self.core.scheduler.spent += asked // LOOKED_AT_PER_COST
        return False

    def deliver_one(self) -> None:
        """Deliver a message that is synced already; the new one is not yet."""
        self._stream.dispatch(1)


@final
class StreamSync(SyncWaiter):
    """Waits until what was published to a stream is synced."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream: Final = stream

    def synced(self, group: i64) -> None:
        """Show what is synced."""
        self.stream.show(group)


@final
class BlockSpill(SpillOwner):
    """Waits until a block is written."""

    def __init__(self, stream: Stream, block: Block) -> None:
        self.stream: Final = stream
        self.block: Final = block

    def spilled(self, ref: ChunkRef) -> None:
        """Notify the stream."""
        self.stream.block_written(self.block, ref)


@final
class BlockRecord(LateRecord):
    """The record of a block that is written and synced."""

    def __init__(self, stream: Stream, block: Block, ref: ChunkRef) -> None:
        self.stream: Final = stream
        self.block: Final = block
        self.ref: Final = ref

    def append_to(self, journal: Journal) -> None:
        """Append it, unless retention took the block meanwhile."""
        if not self.stream.gone(self.block):
            journal.spill(self.stream.queue_id, self.ref, [])


@final
class BlockWanted(ChunkWanted):
    """The request to read a block back."""

    def __init__(self, stream: Stream, block: Block, ref: ChunkRef) -> None:
        super().__init__(stream.queue_id, ref, 0)
        self.stream = stream
        self.block = block

    def arrived(self, data: bytes) -> None:
        """Put the messages into the block and let the readers go on."""
        if self.block.ref is self.ref:
            self.stream.loaded(self.block, data)
        else:
            # It was moved meanwhile, and may be gone from where it lay.
            self.block.wanted = False
            self.stream.want(self.block)
