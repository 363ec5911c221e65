"""Streams, which keep messages, each at an offset, for any number of consumers to read.

Messages are in blocks of at most a chunk's size.  The newest block is in memory.  A block that is
full, or that a checkpoint closes, is written to a file as a chunk and read back when it is needed.
So a stream takes only some 250 bytes of memory for each block.  Acks give credit and remove
nothing; retention removes blocks from the front.

While a batch of a sink is released into the stream, the messages from the batch's first one on are
not visible, so that readers see the whole batch or none of it.

Invariants: only synced offsets are visible; offsets have no gaps except after damage; all blocks
but the last have a place in a file; messages that are not visible yet are in memory.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.arguments import age_seconds, int_argument, is_age
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.backlog.damage import open_chunk, report_messages
from leveret.broker.consumers.consumer import QueueConsumer
from leveret.broker.core import Core
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_ALL, Target
from leveret.broker.scheduler.costs import (
    CHUNK_BYTES_PER_COST,
    LOOKED_AT_PER_COST,
    VISITED_PER_COST,
)
from leveret.broker.scheduler.effects import ChunkWanted, SyncWaiter
from leveret.broker.scheduler.task import WAIT
from leveret.broker.stream.block import StreamBlock, first_of, stored_block
from leveret.broker.stream.filter import stream_filter
from leveret.broker.stream.offsets import StreamOffsets
from leveret.broker.stream.reader import StreamCursor, stream_entry
from leveret.broker.stream.retention import Retention
from leveret.broker.stream.time import block_in_time, end_in_time, offset_in_time
from leveret.chunk import ChunkBuilder, RecordDamaged
from leveret.errors import NotImplementedFault, PreconditionFailed
from leveret.limits import CHUNK_RECORDS_MAX, SUPER_STREAM_PARTITIONS_KEPT_MAX
from leveret.message import Message
from leveret.store.journal.journal import Journal, LateRecord
from leveret.store.segments.segments import ChunkRef, adopted_ref
from leveret.store.segments.spill import SpillOwner
from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from leveret.broker.stream.group import StreamGroup

#: The limit for times on the wire, so that they fit 64 bits in ms; no message is newer.
_SECONDS_MAX: Final = 1 << 50

#: The limit for offsets on the wire, which may exceed 64 bits; no stream becomes so long.
_OFFSET_MAX: Final = 1 << 60


#: The cost of dropping blocks from the front in addition to the blocks themselves, or of closing
#: the last block in addition to writing its bytes.
_RETAINED: Final = 4


#: The field of a stream's id in its record, and the kind of a record with only the id.
STREAM_ID_FIELD: Final = "stream_id"

#: The argument with the id of the stream that a consumer expects; and the argument that requests
#: the id, which the broker then appends to the consumer tag that it generates.
STREAM_ID: Final = "x-stream-id"
TELL_STREAM_ID: Final = "x-stream-tell-id"


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """A callback at the end of a stream for more visible messages."""

    @abstractmethod
    def moved(self) -> None:
        """Continue, because more may be visible or the stream was deleted; called once."""


@final
class Stream(Queue):
    """A queue of type `stream`."""

    def __init__(self, core: Core, queue_id: i64, name: str, arguments: dict[str, object]) -> None:
        super().__init__(core, queue_id, name, QueueAttributes(True, arguments=arguments))
        self.has_offsets = True
        self.adds_headers = True
        #: The stream's id, which distinguishes it from earlier streams with the same name.
        self.stream_id = ""
        #: The number as a partition of a super stream, from 0 on; -1 if it is not a partition.
        self.partition: i64 = min(
            int_argument(arguments, "x-super-stream-partition"), SUPER_STREAM_PARTITIONS_KEPT_MAX
        )
        self._entry = stream_entry(name) if self.partition >= 0 else b""
        #: The newest block, which is in memory and has no place in a file; the last of `blocks`.
        self.last = StreamBlock(0)
        self.blocks: list[StreamBlock] = [self.last]
        self.first_offset: i64 = 0
        self.next_offset: i64 = 0
        #: Offsets below this are synced.
        self.synced_end: i64 = 0
        #: Offsets below this are visible to readers: synced ones before batches being released.
        self.visible_end: i64 = 0
        #: The batches being released into the stream, and where each begins.
        self.batch_starts: dict[SyncWaiter, i64] = {}
        #: The end of each journal group that is not synced yet: (group, next offset).
        self.unsynced: list[tuple[i64, i64]] = []
        #: The callback for the next sync; None once the stream is deleted.
        self.sync: StreamSync | None = StreamSync(self)
        self.size: i64 = 0
        #: The readers of consumers without a name; groups have those of named ones.
        self.readers: dict[QueueConsumer, StreamCursor] = {}
        #: True while a task delivers to the readers one by one; and whether the task must run
        #: again.
        self._serves = False
        self._serves_again = False
        self.offsets = StreamOffsets(self)
        #: Blocks written before their messages were synced, which stay in memory until then.
        self.unseen: list[StreamBlock] = []
        #: The watchers of more visible messages, each called once.
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
        """Return the content of the stream's journal record."""
        return {**super().definition(vhost), STREAM_ID_FIELD: self.stream_id}

    def configure(self, merged: dict[str, object]) -> None:
        """Apply the stream's arguments, merged with its policies."""
        super().configure(merged)
        self.retention.configure(merged)
        for group in self.offsets.groups.values():
            group.settings = self.settings

    # -- writing ----------------------------------------------------------------------------------

    def append(self, message: Message) -> i64:
        """Append `message` without any other effect (recovery)."""
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

    def begin_block(self, first: i64) -> StreamBlock:
        """Begin a block at the end, and write the one before it."""
        share = self.target.share
        if share is not None:
            share.note()
        block = StreamBlock(first)
        self.add_block(block)
        return block

    def add_block(self, block: StreamBlock) -> None:
        """Add a block at the end, and write the one before it."""
        last = self.last
        block.timestamp_before = max(last.timestamp_before, last.timestamp_max)
        if last.count == 0:
            self.blocks.pop()
        elif last.ref is None:
            self._spill(last)
        self.blocks.append(block)
        self.last = block

    def adopt(self, refs: list[ChunkRef]) -> None:
        """Append the messages of a queue's chunks, by references to these chunks."""
        core = self.core
        for ref in refs:
            own = adopted_ref(ref, self.next_offset)
            block = stored_block(own)
            core.spill.use.lives(own, own.count)
            self.add_block(block)
            self.size += block.size
            self.next_offset = block.end
            core.journal.spill(self.queue_id, own, [])
        # The newest block is in memory.
        self.add_block(StreamBlock(self.next_offset))
        self.note_published(core.journal.group)

    def settle(self) -> None:
        """Write all messages that have arrived, for a checkpoint."""
        if self.last.count > 0:
            self.begin_block(self.next_offset)

    def _spill(self, block: StreamBlock) -> None:
        """Write a block to a segment file; it may be dropped from memory once it is written.

        The record of the chunk comes a group after the block's messages (see `SpillRecord`), so a
        crash leaves either the messages in the journal, or both, or the chunk.
        """
        core = self.core
        chunk = block.build(ChunkBuilder(self.queue_id, True), block.first, block.end)
        ref = core.spill.add(chunk, BlockSpill(self, block), False)
        block.ref = ref
        core.spill.use.lives(ref, ref.count)
        core.memory.end_chunk(block.size)

    def block_written(self, block: StreamBlock, ref: ChunkRef) -> None:
        """Journal the place of a written block, which need not stay in memory."""
        block.written = True
        if self.gone(block):
            return
        self.core.journal.later(BlockRecord(self, block, ref))
        self._cache(block)

    def _cache(self, block: StreamBlock) -> None:
        """Put a written block into the cache once it is synced; until then it stays in memory."""
        if block.end > self.synced_end:
            self.unseen.append(block)
        elif not self.gone(block):
            self.core.stream_cache.put(block)

    def show(self, group: i64) -> None:
        """Make messages of the synced groups up to `group` visible, and apply retention."""
        unsynced = self.unsynced
        while unsynced and unsynced[0][0] <= group:
            self.synced_end = unsynced.pop(0)[1]
        if unsynced:
            self._wait_for_sync()
        unseen = self.unseen
        self.unseen = []
        for block in unseen:
            self._cache(block)
        self._show_synced()

    def _show_synced(self) -> None:
        """Make the synced messages visible that no batch hides, and apply retention."""
        end = self.synced_end
        for start in self.batch_starts.values():
            end = min(end, start)
        self.visible_end = end
        self.retain()
        self._schedule_all()
        self._notify_watchers()

    def _wait_for_sync(self) -> None:
        """Have `show` called when the first unsynced group is synced."""
        if self.sync is not None:
            self.core.syncs.wait(self.sync, self.unsynced[0][0])

    def note_published(self, group: i64) -> None:
        """Make the messages up to the end visible when `group` is synced."""
        unsynced = self.unsynced
        if unsynced and unsynced[-1][0] == group:
            unsynced[-1] = (group, self.next_offset)
        else:
            unsynced.append((group, self.next_offset))
            self._wait_for_sync()

    def begin_batch(self, batch: SyncWaiter, offset: i64) -> bool:
        """Hide messages from `offset` on until `end_batch`; return False if `batch` has begun."""
        if batch in self.batch_starts:
            return False
        self.batch_starts[batch] = offset
        self.visible_end = min(self.visible_end, offset)
        return True

    def end_batch(self, batch: SyncWaiter) -> None:
        """Stop hiding messages for a batch."""
        if self.batch_starts.pop(batch, None) is not None and not self.deleted:
            self._show_synced()

    def retain(self) -> None:
        """Drop the blocks beyond the retention, or some of them if there are very many."""
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

    def gone(self, block: StreamBlock) -> bool:
        """Return whether a block no longer belongs to the stream."""
        return self.deleted or block.end <= self.first_offset

    def forget(self, block: StreamBlock) -> None:
        """Release a block that the stream no longer counts."""
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
        """Return the number of visible messages after a stored offset."""
        return max(self.visible_end - max(offset, self.first_offset), 0)

    def place_of(self, offset: i64) -> i64:
        """Return the place of the block with `offset`, or of the next one after it.

        After the last block, the place is the number of blocks.
        """
        blocks = self.blocks
        place: i64 = max(bisect_right(blocks, int(offset), key=first_of) - 1, 0)
        return place if offset < blocks[place].end else place + 1

    def block_at(self, offset: i64) -> StreamBlock | None:
        """Return the block with `offset`, or the next one after it, or None after the last."""
        place = self.place_of(offset)
        if place == len(self.blocks) or self.blocks[place].count == 0:
            return None
        return self.blocks[place]

    def want(self, block: StreamBlock) -> None:
        """Request that the shell read `block`, once."""
        ref = block.ref
        if not block.wanted and ref is not None:
            block.wanted = True
            self.core.wanted.append(BlockWanted(self, block, ref))

    def load(self, block: StreamBlock) -> None:
        """Read a block from its file at once."""
        ref = block.ref
        if ref is not None:
            self.loaded(block, self.core.reader.read(self.queue_id, ref, 0))

    def loaded(self, block: StreamBlock, data: bytes) -> None:
        """Put the messages of `block`, read as `data`, into the cache."""
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

    def _decoded(self, block: StreamBlock, data: bytes) -> list[Message | None]:
        """Return the messages of a chunk, with None for damaged ones, which are reported."""
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

    def attach(self, consumer: QueueConsumer, where: str) -> None:
        """Check the arguments of a new consumer, and create its reader.

        Raises: NotImplementedFault (540) without acks; PreconditionFailed (406) without prefetch,
        for an invalid offset or filter, or for the id of another stream.
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

    def detach(self, consumer: QueueConsumer) -> None:
        """Forget a consumer's reader."""
        self.readers.pop(consumer, None)

    def reader(self, arguments: dict[str, object], where: str) -> StreamCursor:
        """Return a reader for a consumer with these arguments.

        Raises: PreconditionFailed (406).
        """
        wanted = arguments.get("x-stream-offset", "next")
        reader = StreamCursor(self, self.start_offset(wanted, where))
        reader.select(stream_filter(arguments, where), self._time_of(wanted))
        return reader

    def start_offset(self, wanted: object, where: str) -> i64:
        """Return the offset at which a consumer with the `x-stream-offset` `wanted` starts.

        For a time, the result may be too early by less than a block; see `StreamCursor.select`.

        Raises: PreconditionFailed (406).
        """
        if wanted == "first":
            return self.first_offset
        if wanted == "next":
            return self.visible_end
        if wanted == "last":
            return max(self.visible_end - 1, self.first_offset)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            # A negative number counts from the end; it may be of any size.
            offset = wanted if wanted >= 0 else int(self.visible_end) + wanted
            return max(min(offset, _OFFSET_MAX), int(self.first_offset))
        time_ms = self._time_of(wanted)
        if time_ms is None:
            raise PreconditionFailed(f"invalid arg 'x-stream-offset' for {where}")
        return self._seen(block_in_time(self.blocks, time_ms), self.next_offset)

    def _time_of(self, wanted: object) -> i64 | None:
        """Return the time in ms for a wanted offset, or None if it is not a time."""
        if isinstance(wanted, Timestamp):
            return min(wanted.seconds, _SECONDS_MAX) * 1000
        if isinstance(wanted, str) and is_age(wanted):
            return max(self.core.now_ms - age_seconds(wanted) * 1000, 0)
        return None

    def offset_at(self, timestamp_ms: i64) -> i64:
        """Return the offset of the first message from a time on, else the visible end.

        The cost is a search among the blocks and, for a block in a file, a synchronous read.
        """
        offset = offset_in_time(self.blocks, self.core.reader, self.queue_id, timestamp_ms)
        return self._seen(offset, self.next_offset)

    def end_at(self, timestamp_ms: i64) -> i64:
        """Return the offset after the last visible message from before a time, else the first.

        The cost is a look at each block after that offset, and a read as for `offset_at`.
        """
        offset = end_in_time(self.blocks, self.core.reader, self.queue_id, timestamp_ms)
        return self._seen(offset, self.first_offset)

    def _seen(self, offset: i64 | None, otherwise: i64) -> i64:
        """Return an offset, or `otherwise` for None, within the visible part of the stream."""
        found: i64 = otherwise if offset is None else offset
        return max(min(found, self.visible_end), self.first_offset)

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` messages, each consumer's share from its own position.

        A task serves several consumers one by one; after its end it delivers newer messages.
        """
        if self._serves:
            self._serves_again = True
            return False
        readers = self.readers
        # Consumers without credit do not reduce the others' shares.
        ready = [consumer for consumer in readers if consumer.ready()]
        self.core.scheduler.spent += (len(readers) + len(ready)) // LOOKED_AT_PER_COST
        if len(ready) > 1:
            ready.reverse()
            self.core.scheduler.start(self._serve(ready, max(limit // len(ready), 1)))
            return False
        return len(ready) == 1 and readers[ready[0]].hand_out(ready[0], limit)

    def _serve(self, left: list[QueueConsumer], share: i64) -> Iterator[int]:
        """Deliver a share to each consumer that still exists."""
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
        """Call `watcher` once when more messages may be visible, or the stream was deleted."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: StreamWatcher) -> None:
        """Do not call `watcher` any more."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def _notify_watchers(self) -> None:
        watchers = self.watchers
        self.watchers = []
        for watcher in watchers:
            watcher.moved()

    # -- operations of classic queues on single messages ------------------------------------------

    def ready_count(self) -> i64:
        """Return the number of visible messages."""
        return self.visible_end - self.first_offset

    def ready_bytes(self) -> i64:
        """Return the bytes of all messages."""
        return self.size

    def ack(self, sequence: i64, message: Message) -> None:
        """Give the consumer credit; the message stays."""
        self.acked += 1
        self.schedule()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Give the consumer credit; the message stays."""
        self.ack(sequence, message)

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Give the consumer credit; the message is not delivered again."""
        self.schedule()

    def purge(self) -> i64:
        """Refuse.  Raises: NotImplementedFault (540)."""
        raise NotImplementedFault(f"queue.purge is not supported by stream queue '{self.name}'")

    def drop(self) -> None:
        """Drop all blocks and all readers."""
        blocks = self.blocks
        self.size = 0
        self.last = StreamBlock(self.next_offset)
        self.blocks = [self.last]
        self.batch_starts = {}
        self.core.memory.free_table_later(self.readers)
        self.readers = {}
        self.core.scheduler.start(self._let_go(blocks, self.offsets.drop()))
        self._notify_watchers()

    def _let_go(self, blocks: list[StreamBlock], groups: list[StreamGroup]) -> Iterator[int]:
        """Forget removed blocks, and groups that no longer deliver.

        Blocks in memory count as used memory until they are forgotten.
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
                # A block has few messages, but a super stream has many partitions.
                self.core.memory.free_later(messages)
            yield 1

    def untie(self) -> None:
        """Drop the parts that refer to the stream, after it was dropped."""
        super().untie()
        self.sync = None


@final
class StreamTarget(Target):
    """The target of one stream; all its messages are journaled."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.core, stream.name, stream.queue_id, RECORDS_ALL)
        self._stream: Final = stream

    def publish(self, message: Message) -> i64:
        """Append `message`; return its offset.  It becomes visible when its group is synced."""
        stream = self._stream
        offset = stream.append(message)
        self.published += 1
        stream.note_published(self.core.journal.group)
        return offset

    def begin_batch(self, batch: SyncWaiter, offset: i64 = -1) -> bool:
        """Hide the messages from `offset` on, or all new ones, until `end_batch`."""
        stream = self._stream
        return stream.begin_batch(batch, stream.next_offset if offset < 0 else offset)

    def end_batch(self, batch: SyncWaiter) -> None:
        """Stop hiding messages for a batch."""
        self._stream.end_batch(batch)

    def batch_start(self, batch: SyncWaiter) -> i64:
        """Return the first offset that is hidden for a batch, or -1 if none is."""
        return self._stream.batch_starts.get(batch, -1)

    def takes_now(self) -> bool:
        """Return whether a consumer has credit; it gets the message after the sync."""
        asked: i64 = 0
        for consumer in self._stream.readers:
            if consumer.ready():
                return True
            asked += 1
        self.core.scheduler.spent += asked // LOOKED_AT_PER_COST
        return False

    def deliver_one(self) -> None:
        """Deliver a message that is already synced; the new one is not yet."""
        self._stream.dispatch(1)


@final
class StreamSync(SyncWaiter):
    """The waiter for the sync of messages published to a stream."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream: Final = stream

    def synced(self, group: i64) -> None:
        """Make the synced messages visible."""
        self.stream.show(group)


@final
class BlockSpill(SpillOwner):
    """The waiter for the write of a block."""

    def __init__(self, stream: Stream, block: StreamBlock) -> None:
        self.stream: Final = stream
        self.block: Final = block

    def spilled(self, ref: ChunkRef) -> None:
        """Notify the stream."""
        self.stream.block_written(self.block, ref)


@final
class BlockRecord(LateRecord):
    """The record of a block that is written and synced."""

    def __init__(self, stream: Stream, block: StreamBlock, ref: ChunkRef) -> None:
        self.stream: Final = stream
        self.block: Final = block
        self.ref: Final = ref

    def append_to(self, journal: Journal) -> None:
        """Append the record, unless retention has removed the block."""
        if not self.stream.gone(self.block):
            journal.spill(self.stream.queue_id, self.ref, [])


@final
class BlockWanted(ChunkWanted):
    """A request to read a block back."""

    def __init__(self, stream: Stream, block: StreamBlock, ref: ChunkRef) -> None:
        super().__init__(stream.queue_id, ref, 0)
        self.stream = stream
        self.block = block

    def arrived(self, data: bytes) -> None:
        """Put the messages into the block, and schedule the stream."""
        if self.block.ref is self.ref:
            self.stream.loaded(self.block, data)
        else:
            # The chunk was moved in the meantime, and may be gone from its old place.
            self.block.wanted = False
            self.stream.want(self.block)
