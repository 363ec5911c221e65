"""The stream: messages stay, each at an offset, and any number of consumers read them.

Messages lie in blocks of at most a chunk's size.  The newest blocks are in memory; a block that a
checkpoint wrote out is a chunk in a file and is read back when somebody wants it.  Acks are credit
and remove nothing; retention removes whole blocks from the front.

Invariants: only synced offsets are visible; offsets have no gaps; the last block is in memory.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.arguments import age_seconds, int_argument, is_age
from leveret.broker.consumer import Consumer
from leveret.broker.queue import Queue
from leveret.broker.source import NOTHING
from leveret.broker.stream_block import Block
from leveret.broker.stream_chunks import StreamWatcher
from leveret.broker.stream_filter import stream_filter
from leveret.broker.stream_reader import BlockWanted, StreamReader
from leveret.broker.turn import Damaged, Turn
from leveret.chunk import ChunkDamaged, RecordDamaged
from leveret.errors import NotImplementedFault, PreconditionFailed
from leveret.limits import CHUNK_BYTES_MAX, CHUNK_RECORDS_MAX
from leveret.message import Message
from leveret.store.checkpoint import NewChunk
from leveret.store.segments import ChunkRef, check_chunk
from leveret.wire.tables import Timestamp

#: No message is younger; what is later on the wire means the same and must fit 64 bits in ms.
_SECONDS_MAX: Final = 1 << 50

#: No stream comes so far; a number on the wire may be greater than what 64 bits with a sign hold.
_OFFSET_MAX: Final = 1 << 60

#: Blocks of one stream that were read back from files and stay in memory for other readers.
_LOADED_MAX: Final = 16


@final
class Stream(Queue):
    """A queue of type `stream`."""

    def __init__(self, turn: Turn, queue_id: i64, name: str, arguments: dict[str, object]) -> None:
        super().__init__(turn, queue_id, name, True, False, False, arguments)
        self.keeps_all = True
        self.adds_headers = True
        self.blocks: list[Block] = [Block(0)]
        self.first_offset: i64 = 0
        self.next_offset: i64 = 0
        #: Offsets below it are synced; readers see no more.
        self.visible_end: i64 = 0
        #: What each group of the journal that is not synced yet ends with: (group, next offset).
        self.unsynced: list[tuple[i64, i64]] = []
        self.size: i64 = 0
        self.readers: dict[Consumer, StreamReader] = {}
        self.loaded_blocks: list[Block] = []
        #: Blocks that a checkpoint wrote before their messages were synced: in memory until then.
        self.stored_unseen: list[Block] = []
        #: Who waits for more to be seen, each called once.
        self.watchers: list[StreamWatcher] = []
        self.bytes_max: i64 = -1
        self.age_ms_max: i64 = -1
        self.configure(arguments)

    @property
    def kind(self) -> str:
        """Return `stream`."""
        return "stream"

    def configure(self, merged: dict[str, object]) -> None:
        """Take the stream's arguments as its policies have changed them."""
        super().configure(merged)
        self.bytes_max = int_argument(merged, "x-max-length-bytes")
        age = merged.get("x-max-age")
        self.age_ms_max = age_seconds(age) * 1000 if isinstance(age, str) else -1

    # -- writing ----------------------------------------------------------------------------------

    def publish(self, message: Message) -> i64:
        """Append `message`; return its offset.  It is seen when its group is synced."""
        offset = self.append(message)
        self.published += 1
        group = self.turn.journal.group
        unsynced = self.unsynced
        if unsynced and unsynced[-1][0] == group:
            unsynced[-1] = (group, self.next_offset)
        else:
            unsynced.append((group, self.next_offset))
            self.turn.wait(self, unsynced[0][0])
        return offset

    def append(self, message: Message) -> i64:
        """Put `message` at the end and nothing else (recovery)."""
        block = self.blocks[-1]
        full = block.count >= CHUNK_RECORDS_MAX or block.size + message.size > CHUNK_BYTES_MAX
        if block.messages is None or block.ref is not None or (full and block.count > 0):
            block = Block(self.next_offset)
            self.blocks.append(block)
        block.add(message)
        self.size += message.size
        self.turn.unchunked_bytes += message.size
        self.turn.held_bytes += message.size
        self.turn.held_messages += 1
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def synced(self, group: i64) -> None:
        """Show what the synced groups hold, then let retention look."""
        unsynced = self.unsynced
        while unsynced and unsynced[0][0] <= group:
            self.visible_end = unsynced.pop(0)[1]
        if unsynced:
            self.turn.wait(self, unsynced[0][0])
        if self.stored_unseen:
            self._unload_seen()
        self.retain()
        self.mark()
        if self.watchers:
            self._tell_watchers()

    def _unload_seen(self) -> None:
        """Let go of the memory of stored blocks that are seen by now."""
        stored = self.stored_unseen
        self.stored_unseen = []
        for block in stored:
            if block.first + block.count <= self.visible_end:
                self._unload(block)
            else:
                self.stored_unseen.append(block)

    def retain(self) -> None:
        """Remove whole blocks from the front that are over the size or the age allowed."""
        blocks = self.blocks
        dropped: i64 = 0
        # The newest message stays: by it a reader learns where the stream has come to.
        places: i64 = len(blocks) - (2 if blocks[-1].count == 0 else 1)
        while dropped < places and self._expired(blocks[dropped]):
            block = blocks[dropped]
            self._forget(block)
            dropped += 1
        if dropped:
            del blocks[:dropped]
            self.first_offset = blocks[0].first
            self.turn.journal.trim(self.queue_id, self.first_offset)

    def _forget(self, block: Block) -> None:
        """Let go of a block for good."""
        self.size -= block.size
        if block.ref is None:
            self.turn.unchunked_bytes -= block.size
        else:
            self.turn.spill.use.lives(block.ref, -block.ref.count)
        self._unload(block)

    def _expired(self, block: Block) -> bool:
        if block.first + block.count > self.visible_end:
            return False
        if self.bytes_max >= 0 and self.size > self.bytes_max:
            return True
        return self.age_ms_max >= 0 and block.timestamp_max < self.turn.now_ms - self.age_ms_max

    def _unload(self, block: Block) -> None:
        if block.messages is not None:
            block.messages = None
            self.turn.held_bytes -= block.size
            self.turn.held_messages -= block.count
            if block in self.loaded_blocks:
                self.loaded_blocks.remove(block)

    # -- blocks -----------------------------------------------------------------------------------

    def place_of(self, offset: i64) -> i64:
        """Return the place of the last block that begins at or before `offset`."""
        blocks = self.blocks
        low: i64 = 0
        high: i64 = len(blocks) - 1
        while low < high:
            middle: i64 = (low + high + 1) // 2
            if blocks[middle].first <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    def block_at(self, offset: i64) -> Block | None:
        """Return the block that holds `offset`, or the next one after it; None behind the last."""
        place = self.place_of(offset)
        block = self.blocks[place]
        if offset >= block.first + block.count:
            if place + 1 >= len(self.blocks):
                return None
            block = self.blocks[place + 1]
        return block if block.count > 0 else None

    def want(self, block: Block) -> None:
        """Ask the shell to read `block`, once."""
        ref = block.ref
        if not block.wanted and ref is not None:
            block.wanted = True
            self.turn.wanted.append(BlockWanted(self, block, ref))

    def loaded(self, block: Block, data: bytes) -> None:
        """Take the chunk of `block` into memory, and let go of the one loaded longest ago."""
        block.wanted = False
        gone = self.deleted or block.first + block.count <= self.first_offset
        if gone or block.messages is not None:
            return
        block.messages = self._decoded(block, data)
        self.turn.held_bytes += block.size
        self.turn.held_messages += block.count
        self.loaded_blocks.append(block)
        if len(self.loaded_blocks) > _LOADED_MAX:
            self._unload(self.loaded_blocks[0])
        self.mark()

    def _decoded(self, block: Block, data: bytes) -> list[Message | None]:
        """Return the messages of a chunk; what is damaged is None, and told to the log."""
        messages: list[Message | None] = [None] * block.count
        ref = block.ref
        assert ref is not None
        try:
            chunk = check_chunk(data, ref, self.queue_id)
        except ChunkDamaged as damage:
            what = f"stream '{self.name}': {ref} is damaged: {damage}"
            self.turn.damaged.append(Damaged(ref, data, what, ref.count))
            return messages
        broken: list[str] = []
        for index in range(chunk.count):
            try:
                messages[chunk.sequence(index) - block.first] = chunk.message(index)
            except RecordDamaged as record:  # mypyc: a name has one type in a function
                broken.append(str(record.sequence))
        if broken:
            what = f"stream '{self.name}': {ref}: the messages {', '.join(broken[:20])}"
            self.turn.damaged.append(Damaged(ref, data, what, len(broken)))
        return messages

    def next_number(self) -> i64:
        """Return the offset that the next message gets."""
        return self.next_offset

    def chunked(self, chunk: NewChunk) -> None:
        """Let go of the memory of messages that a checkpoint wrote to a chunk.

        The chunk begins and ends inside one block, which is split around it.
        """
        ref = chunk.ref
        if ref.first < self.first_offset:
            return
        place: i64 = self.place_of(ref.first)
        block = self.blocks[place]
        if ref.last + 1 < block.first + block.count:
            self.blocks.insert(place + 1, block.split(ref.last + 1))
        if ref.first > block.first:
            block = block.split(ref.first)
            self.blocks.insert(place + 1, block)
            place += 1
        block.ref = ref
        self.turn.spill.use.lives(ref, ref.count)
        self.turn.unchunked_bytes -= block.size
        if place == len(self.blocks) - 1:
            self.blocks.append(Block(self.next_offset))
        if block.first + block.count <= self.visible_end:
            self._unload(block)
        else:
            self.stored_unseen.append(block)

    def restore_block(self, ref: ChunkRef) -> None:
        """Add a block that lies in a file (recovery, in the order of the offsets)."""
        block = Block(ref.first)
        block.count = ref.last - ref.first + 1
        block.size = ref.size
        block.timestamp_min = ref.min_timestamp
        block.timestamp_max = ref.max_timestamp
        block.messages = None
        block.ref = ref
        self.turn.spill.use.wrote(ref)
        self.turn.spill.use.lives(ref, ref.count)
        if self.blocks[-1].count == 0:
            self.blocks.pop()
        if not self.blocks:
            self.first_offset = ref.first
        self.blocks.append(block)
        self.size += block.size
        self.next_offset = ref.last + 1

    def restore_message(self, offset: i64, message: Message) -> None:
        """Add a message of the journal (recovery, in order); damage may have left a gap."""
        if offset < self.next_offset:
            return
        if offset > self.next_offset:
            self.next_offset = offset
            if self.blocks[-1].count == 0:
                self.blocks.pop()
                if not self.blocks:
                    self.first_offset = offset
            self.blocks.append(Block(offset))
        self.append(message)

    def restore_end(self, first_offset: i64, next_offset: i64) -> None:
        """Set where the stream begins and goes on (recovery); all of it is synced."""
        if next_offset > self.next_offset:
            self.next_offset = next_offset
            self.blocks.append(Block(next_offset))
        while len(self.blocks) > 1 and self.blocks[0].first + self.blocks[0].count <= first_offset:
            self._forget(self.blocks.pop(0))
        self.first_offset = max(self.blocks[0].first, first_offset)
        self.visible_end = self.next_offset

    # -- reading ----------------------------------------------------------------------------------

    def attach(self, consumer: Consumer, where: str) -> None:
        """Place a new consumer by its arguments.

        Raises: NotImplementedFault (540) without acks; PreconditionFailed (406) without prefetch,
        for an offset that is none or a filter that is none.
        """
        if consumer.no_ack:
            raise NotImplementedFault(
                f"automatic acknowledgement not supported by stream queues {where}"
            )
        if consumer.prefetch_count <= 0:
            raise PreconditionFailed(f"consumer prefetch count is not set for '{where}'")
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
        if time_ms == NOTHING:
            raise PreconditionFailed(f"invalid arg 'x-stream-offset' for {where}")
        return self._offset_at(time_ms)

    def _time_of(self, wanted: object) -> i64:
        """Return the time in ms that a wanted offset stands for; NOTHING where it is no time."""
        if isinstance(wanted, Timestamp):
            return min(wanted.seconds, _SECONDS_MAX) * 1000
        if isinstance(wanted, str) and is_age(wanted):
            return max(self.turn.now_ms - age_seconds(wanted) * 1000, 0)
        return NOTHING

    def _offset_at(self, timestamp_ms: i64) -> i64:
        """Return the first offset of the first block that reaches `timestamp_ms`.

        Within a block that is in memory the message itself is found; RabbitMQ, too, answers with
        the start of a chunk.
        """
        for block in self.blocks:
            if block.count > 0 and block.timestamp_max >= timestamp_ms:
                offset = block.first
                if block.messages is not None:
                    for message in block.messages:
                        if message is not None and message.timestamp_ms >= timestamp_ms:
                            break
                        offset += 1
                return min(offset, self.visible_end)
        return self.visible_end

    def dispatch(self, limit: i64) -> bool:
        """Hand out up to `limit` messages, each consumer's share from its own place."""
        more = False
        share: i64 = max(limit // max(len(self.consumers), 1), 1)
        for consumer, reader in self.readers.items():
            if reader.hand_out(consumer, share) == share:
                more = True
        return more

    def watch(self, watcher: StreamWatcher) -> None:
        """Call `watcher` once when more may be seen, or the stream was deleted."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: StreamWatcher) -> None:
        """Call `watcher` no more."""
        if watcher in self.watchers:
            self.watchers.remove(watcher)

    def _tell_watchers(self) -> None:
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
        self.mark()

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """A stream lets go of nothing; the credit returns."""
        self.ack(sequence, message)

    def requeue(self, sequence: i64, message: Message, count: i64) -> None:
        """A stream takes nothing back; the credit returns."""
        self.mark()

    def purge(self) -> i64:
        """Refuse.  Raises: NotImplementedFault (540)."""
        raise NotImplementedFault(f"queue.purge is not supported by stream queue '{self.name}'")

    def drop(self) -> None:
        """Let go of all blocks."""
        for block in self.blocks:
            self._forget(block)
        self.blocks = [Block(self.next_offset)]
        self.readers.clear()
        self._tell_watchers()
