"""Named consumers of a stream, one of which reads at a time, from a stored offset.

A consumer with the argument `x-stream-consumer` belongs to the group of that name.  The group has
one position in the stream.  One of its consumers is active and reads from there.  When the active
consumer ends, the next one continues from the first message that was not acked.  It gets no
messages while its predecessor has unacked messages, because their acks still count.

For its consumers, the group takes the place of the stream: they subscribe to it, and it handles the
acks of their deliveries.  In all other respects they are consumers of the stream.

Invariants: offsets are delivered in order, so the first of `unsettled` is the lowest; a group is in
`stream.offsets.groups` exactly while it has consumers or unsettled deliveries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.consumers.order import RoundRobin, place_of
from leveret.broker.consumers.single_active import SingleActive
from leveret.broker.stream.filter import StreamFilter
from leveret.broker.stream.offsets import check_reader_name
from leveret.broker.stream.reader import StreamCursor

if TYPE_CHECKING:
    from leveret.broker.ownership import Owner
    from leveret.broker.stream.stream import Stream
    from leveret.message import Message

#: The argument that names a consumer's group.
READER_NAME: Final = "x-stream-consumer"


@final
class StreamGroup(Source):
    """The source of a stream's consumers with one name."""

    def __init__(self, stream: Stream, reader_name: str) -> None:
        super().__init__(stream.core, stream.name, stream.settings)
        self.stream: Final = stream
        self.reader_name: Final = reader_name
        self.has_offsets = True
        self.adds_headers = True
        self.consumer_order: RoundRobin = SingleActive(self.consumers, stream.partition)
        self.filters: dict[QueueConsumer, StreamFilter | None] = {}
        #: The reader of the served consumer, which is the last one that got a message.
        self.reader: StreamCursor | None = None
        self.served: QueueConsumer | None = None
        #: Deliveries that were not acked, rejected or requeued.
        self.unsettled: dict[i64, None] = {}
        #: The lowest requeued offset, at which the next consumer begins, or None.
        self.returned: i64 | None = None

    def own_entry(self) -> bytes:
        """Return the header with a partition's name."""
        return self.stream.own_entry()

    # -- consumers --------------------------------------------------------------------------------

    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add a consumer.

        Raises: as `Stream.attach`; AccessRefused (403) if there is an exclusive consumer, and for a
        name that belongs to another user; PreconditionFailed (406) if the stream keeps offsets for
        too many names, or the user has too many.
        """
        stream = self.stream
        offsets = stream.offsets
        reader = stream.reader(consumer.arguments, where)
        by = consumer.channel.link.as_owner
        offsets.check_user(self.reader_name, by)
        stream.subscribe(consumer, where)
        offsets.own(self.reader_name, by)
        offsets.groups[self.reader_name] = self
        self.filters[consumer] = reader.wanted
        if self.reader is None:
            stored = offsets.stored.get(self.reader_name)
            if stored is not None:
                reader = StreamCursor(stream, stored)
            self.reader = reader
            self.store()
        self.consumers.append(consumer)
        self.consumer_order = self.consumer_order.added(consumer)
        self.schedule()

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove a consumer; the reply to its cancel waits until its acks are stored."""
        self.stream.unsubscribe(consumer)
        place = place_of(consumer, self.consumers)
        del self.consumers[place]
        del self.filters[consumer]
        self.consumer_order = self.consumer_order.removed(consumer, place)
        self.store()
        self.core.syncs.wait_in_reply(self.core.journal.last_group)
        self._end_unused()
        self.schedule()

    def end_others(self, owner: Owner) -> None:
        """Cancel consumers of other users than `owner`; acks of their deliveries still count."""
        for consumer in list(self.consumers):
            if not owner.is_same(consumer.channel.link.as_owner):
                # If the consumer is a part of one for all partitions, this ends the whole consumer.
                consumer.cancel()
                if consumer in self.consumers:
                    self.unsubscribe(consumer)

    def drop(self) -> None:
        """Forget the consumers, because the stream is deleted."""
        self.deleted = True
        self.consumers.clear()
        self.consumer_order = RoundRobin(self.consumers)
        self.filters.clear()
        self.served = None

    def active(self) -> QueueConsumer | None:
        """Return the active consumer, or None."""
        for consumer in self.consumers:
            if self.consumer_order.is_active(consumer):
                return consumer
        return None

    def _end_unused(self) -> None:
        """End the group after its last consumer and its last delivery."""
        if not self.consumers and not self.unsettled:
            self.store()
            self.stream.offsets.end(self)
            # Break the reference cycle: the consumer refers to the group.
            self.served = None

    def _serve(self, consumer: QueueConsumer) -> StreamCursor:
        """Have `consumer` continue where the previous one stopped."""
        before = self.reader
        assert before is not None
        reader = StreamCursor(self.stream, self.position())
        reader.select(self.filters[consumer], before.from_ms)
        reader.unsettled = self.unsettled
        self.reader = reader
        self.served = consumer
        self.unsettled.clear()
        self.returned = None
        return reader

    # -- messages ---------------------------------------------------------------------------------

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` messages to the active consumer."""
        consumer = self.consumer_order.next()
        reader = self.reader
        if consumer is None or reader is None or self.deleted:
            return False
        if consumer is not self.served:
            reader = self._serve(consumer)
        before = reader.offset
        more = reader.hand_out(consumer, limit)
        if reader.offset != before and not self.unsettled:
            # The reader skipped messages that do not match, which need not be checked again.
            self.stream.offsets.note(self)
        return more

    def position(self) -> i64:
        """Return the offset of the first message that is not settled."""
        reader = self.reader
        assert reader is not None
        offset: i64 = next(iter(self.unsettled), reader.offset)
        returned = self.returned
        return offset if returned is None else min(offset, returned)

    def store(self) -> None:
        """Journal the group's position, once it is known."""
        reader = self.reader
        if reader is not None and reader.from_ms is None and not self.deleted:
            self.stream.offsets.store(self.reader_name, self.position())

    def ack(self, sequence: i64, message: Message) -> None:
        """Settle an acked message."""
        self.stream.acked += 1
        self._settle(sequence)

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Settle a rejected message, which stays in the stream and is not delivered again."""
        self.ack(sequence, message)

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Requeue a message; the offset stays before it until it is delivered again."""
        returned = self.returned
        if returned is None or sequence < returned:
            self.returned = sequence
        self._settle(sequence)

    def _settle(self, sequence: i64) -> None:
        self.unsettled.pop(sequence, None)
        if not self.deleted:
            self.stream.offsets.note(self)
            self._end_unused()
            self.schedule()


def group_of(stream: Stream, name: object, where: str) -> StreamGroup:
    """Return the stream's group with that name, or a new group.

    Raises: PreconditionFailed (406) for an invalid name; `where` names the stream in the error.
    """
    checked = check_reader_name(name, where)
    group = stream.offsets.groups.get(checked)
    return StreamGroup(stream, checked) if group is None else group
