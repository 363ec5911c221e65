"""The position of a consumer in a stream.

A stream may have thousands of consumers, so each cursor stores only an offset and its block.

Invariants: a cursor only moves forward, and never returns a message that is not synced yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

from leveret.broker.backlog.window import NOTHING
from leveret.message import Message
from leveret.wire.buffer import BytesWriter, write_i32_be

if TYPE_CHECKING:
    from leveret.broker.consumers.consumer import QueueConsumer
    from leveret.broker.stream.block import StreamBlock
    from leveret.broker.stream.filter import StreamFilter
    from leveret.broker.stream.stream import Stream


@final
class StreamCursor:
    """The position of one consumer in a stream."""

    def __init__(self, stream: Stream, offset: i64) -> None:
        self.stream = stream
        #: The offset of the next message.
        self.offset: i64 = offset
        self.block: StreamBlock | None = None
        #: True while messages are filtered.
        self.selects = False
        self.wanted: StreamFilter | None = None
        #: Messages before the first one with that time are skipped; None to skip none.
        self.from_ms: i64 | None = None
        #: The group's deliveries until they are settled; None without a group.
        self.unsettled: dict[i64, None] | None = None

    def select(self, wanted: StreamFilter | None, from_ms: i64 | None) -> None:
        """Return only messages that match `wanted`, from the first one at `from_ms` or later.

        Either may be None.
        """
        self.wanted = wanted
        self.from_ms = from_ms
        self.selects = wanted is not None or from_ms is not None

    def hand_out(self, consumer: QueueConsumer, limit: i64) -> bool:
        """Deliver to `consumer` those of the next `limit` messages that match, and count them.

        Long headers and bodies count as several messages.  Messages that do not match count too,
        but cost no credit.  Return whether the limit was reached, so that there may be more.
        """
        channel = consumer.channel
        unsettled = self.unsettled
        core = self.stream.core
        end = core.scheduler.end_of_slice()
        looked: i64 = 0
        delivered: i64 = 0
        while looked < limit and not core.scheduler.is_past(end) and consumer.ready():
            offset = self.first()
            if offset == NOTHING:
                break
            looked += 1
            message = self.take()
            if not self.selects or self._wants(message):
                if unsettled is not None:
                    unsettled[offset] = None
                channel.deliver(consumer, message, offset, 0)
                delivered += 1
        self.stream.delivered += delivered
        more = looked >= limit or core.scheduler.is_past(end)
        core.scheduler.spent += looked
        return more

    def _wants(self, message: Message) -> bool:
        from_ms = self.from_ms
        if from_ms is not None:
            if message.timestamp_ms < from_ms:
                return False
            # Later messages match whatever their times, because the clock may have been set back.
            self.from_ms = None
            self.selects = self.wanted is not None
        wanted = self.wanted
        if wanted is None:
            return True
        before = wanted.cost
        verdict = wanted.matches(message)
        self.stream.scheduler.spent += wanted.cost - before
        return verdict

    def first(self) -> i64:
        """Return the next offset, or NOTHING (at the end, or before its block is read)."""
        stream = self.stream
        while self.offset < stream.visible_end:
            block = self.block
            if (
                block is None
                or self.offset < stream.first_offset
                or not block.first <= self.offset < block.end
            ):
                block = self._enter()
                if block is None or self.offset >= stream.visible_end:
                    # Retention, or a gap, may have moved the cursor to messages that are not synced
                    # yet.
                    return NOTHING
            messages = block.messages
            if messages is None:
                stream.want(block)
                return NOTHING
            if messages[self.offset - block.first] is not None:
                return self.offset
            # This message was lost to damage; continue with the next one.
            self.offset += 1
        return NOTHING

    def _enter(self) -> StreamBlock | None:
        """Find the block of the offset, or the next block after a gap; return None at the end."""
        stream = self.stream
        self.offset = max(self.offset, stream.first_offset)
        place = stream.place_of(self.offset)
        if place == len(stream.blocks):
            return None
        block = stream.blocks[place]
        self.offset = max(self.offset, block.first)
        self.block = block
        stream.core.stream_cache.use(block)
        if place + 1 < len(stream.blocks):
            # Have the next block in memory when this one is used up.
            ahead = stream.blocks[place + 1]
            if ahead.messages is None:
                stream.want(ahead)
        return block

    def take(self) -> Message:
        """Return the message at the offset and move on."""
        block = self.block
        assert block is not None
        assert block.messages is not None
        message = block.messages[self.offset - block.first]
        assert message is not None
        self.offset += 1
        return message


def stream_entry(name: str) -> bytes:
    """Return the header `x-stream-name` as a table entry."""
    w = BytesWriter()
    w.write(b"\x0dx-stream-nameS")
    raw = name.encode("utf-8", "surrogateescape")
    write_i32_be(w, i32(len(raw)))
    w.write(raw)
    return w.getvalue()
