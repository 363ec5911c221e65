"""A channel of a HareMQ connection, which has at most one consumer.

The protocol calls a delivery to a consumer a *push*, a basicConsumeResponse.  Its id is the
message's `message_id`, if that is text and no other unacked delivery of the queue has the same id.
Otherwise the broker generates an id, so that an ack identifies one delivery.  A `message_id` that
looks like a generated id is not used, so that clients cannot claim generated ids.  With automatic
acks, a message is acked when the shell takes its push to write it to the socket.

An ack in HareMQ names a queue and a message, and may arrive on any channel of any connection.
Therefore all connections of a listener, which have the same vhost and user, share one table of
unacked deliveries.

Invariants: a closed channel gets no push.  A consumer gets its first push after the answer to its
request, in a later write.  A delivery in the shared table is also in its channel's table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import DeliveryChannel, QueueConsumer, Source
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.accounts import (
    HARE_CHANNEL_BYTES,
    HARE_CONSUMER_BYTES,
    HARE_UNACKED_BYTES,
)
from leveret.broker.scheduler.costs import MESSAGES_PER_COST
from leveret.broker.scheduler.timers import Timed
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError
from leveret.haremq.body_text import BodyText
from leveret.haremq.fields import (
    DURABLE,
    UNDURABLE,
    is_text,
    push_around,
    push_prefix,
    write_push,
)
from leveret.haremq.frames import HARE_MQ
from leveret.large_dict import LargeDict
from leveret.limits import (
    BODY_APART_BYTES,
    CONTENT_BYTES_PER_COST,
    HAREMQ_FRAME_BYTES_MAX,
    HAREMQ_UNACKED_MAX,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_HIGH,
    TABLE_BYTES_PER_COST,
)
from leveret.message import Message
from leveret.session.client_session import ClientSession
from leveret.wire.content.output import FrameOutput
from leveret.wire.properties import MESSAGE_ID, property_place

#: The longest body of a push, as text; the rest of the frame has only a few ids and names.
_PUSH_BODY_BYTES_MAX: Final = HAREMQ_FRAME_BYTES_MAX - 16_384

#: The prefix of ids that the broker generates.
_MADE: Final = b"leveret-"


#: The time from writing an answer to the first push, in ms: 1 ms, after which the write is
#: certainly done, and 2 more, of which at least one passes in full.
WRITTEN_MS: Final = 1
_PUSH_DELAY_MS: Final = 2


def queue_prefix(queue_name: bytes) -> bytes:
    """Return the prefix of a queue's delivery keys; its last byte never occurs in UTF-8."""
    return queue_name + b"\xff"


@final
class HareConsumer(QueueConsumer):
    """The consumer of a channel; it takes no messages until its answer has been written."""

    def __init__(self, channel: HareChannel, queue: Source, tag: str, auto_ack: bool) -> None:
        # The queue must not treat it as no_ack: messages that cannot be pushed are requeued.
        super().__init__(channel, queue, tag, False, False, HAREMQ_UNACKED_MAX, {})
        self.auto_ack = auto_ack
        self.prefix = push_prefix(channel.cid, tag.encode())
        self.key_prefix = queue_prefix(queue.name.encode())
        self.is_held = True
        self.bytes += HARE_CONSUMER_BYTES + len(self.prefix) + len(self.key_prefix)

    def ready(self) -> bool:
        """Return whether the consumer can take another message now."""
        return not self.is_held and super().ready()

    def begin(self) -> None:
        """Start to take messages."""
        self.is_held = False
        if not self.queue.deleted:
            self.queue.schedule()


@final
class FirstPush(Timed):
    """The timer that delays a consumer's first push after the write of its answer."""

    def __init__(self, consumer: HareConsumer) -> None:
        super().__init__()
        self._consumer: Final = consumer
        self._written = False

    def due(self, now_ms: i64) -> None:
        """Set the timer once more; the second time, start the consumer."""
        if self._written:
            self._consumer.begin()
        else:
            # Wait again: the answer has just been written, in a batch whose clock may be behind.
            self._written = True
            self._consumer.queue.core.timers.set(self, now_ms + _PUSH_DELAY_MS)


@final
class HareDelivery:
    """One delivery to a consumer of a channel; its key consists of the queue's name and the id."""

    def __init__(
        self,
        channel: HareChannel,
        consumer: HareConsumer,
        key: bytes,
        message: Message,
        sequence: i64,
        count: i64,
    ) -> None:
        self.channel = channel
        self.consumer = consumer
        self.queue = consumer.queue
        self.key = key
        self.message = message
        self.sequence: i64 = sequence
        self.count: i64 = count


@final
class Pushes:
    """The sent pushes of a connection with automatic acks."""

    def __init__(self) -> None:
        #: The protobuf package of the pushes.
        self.package = HARE_MQ
        self.to_ack: list[HareDelivery] = []

    def ack(self) -> None:
        """Ack the deliveries whose pushes the shell has taken."""
        pushed = self.to_ack
        if not pushed:
            return
        self.to_ack = []
        core = pushed[0].queue.core
        core.scheduler.changes += 1
        core.scheduler.spent += len(pushed) // MESSAGES_PER_COST
        for delivery in pushed:
            delivery.channel.settle(delivery)


@final
class HareChannel(DeliveryChannel):
    """A channel of a HareMQ connection."""

    def __init__(
        self,
        connection: ClientSession,
        vhost: Vhost,
        output: FrameOutput,
        pushes: Pushes,
        deliveries: LargeDict[bytes, HareDelivery],
        cid: bytes,
    ) -> None:
        super().__init__(connection)
        self._connection = connection
        self._vhost = vhost
        self._output = output
        self._pushes = pushes
        self._deliveries = deliveries
        self.cid = cid
        self.consumer: HareConsumer | None = None
        #: The unacked deliveries, oldest first.
        self._unacked: dict[bytes, HareDelivery] = {}
        #: The size of their keys in bytes.
        self._key_bytes: i64 = 0
        self._garbled = False

    # -- memory ------------------------------------------------------------------------------------

    def memory(self) -> i64:
        """Return the memory of a channel without its consumer and its deliveries."""
        return HARE_CHANNEL_BYTES + len(self.cid)

    def unacked_bytes(self) -> i64:
        """Return the memory of the unacked deliveries without their messages."""
        return self.unacked_count * HARE_UNACKED_BYTES + self._key_bytes

    # -- the consumer ------------------------------------------------------------------------------

    def consume(self, consumer: HareConsumer, where: str) -> None:
        """Subscribe the channel's only consumer to its queue; `where` names the queue in errors.

        Raises: as `Source.subscribe`.
        """
        consumer.queue.subscribe(consumer, where)
        self.consumer = consumer
        self.link.account.book(consumer.bytes)

    def cancel(self) -> None:
        """Cancel the consumer, and requeue its unacked deliveries."""
        self.link.scheduler.start(self.end(False))

    def open_consumers(self) -> list[QueueConsumer]:
        """Return the consumer, if the channel has one."""
        return [] if self.consumer is None else [self.consumer]

    def has(self, consumer: QueueConsumer) -> bool:
        """Return whether `consumer` is the channel's current consumer."""
        return self.consumer is consumer

    def cancelled(self, consumer: QueueConsumer) -> None:
        """Remove the consumer of a deleted queue; the protocol cannot notify the client."""
        if self.consumer is consumer:
            # Its deliveries were deleted with the queue.
            self.cancel()

    def end(self, failed: bool) -> Iterator[int]:
        """Cancel the consumer and requeue its unacked deliveries; `failed` as in `Source.requeue`.

        The queue delivers again only after all of them are requeued, so that they keep their order.
        Afterwards, an auto-delete queue without other consumers is deleted.
        """
        consumer = self.consumer
        if consumer is None:
            # Deliveries end with their consumer, so there are none.
            return
        self.consumer = None
        self.link.account.book(-consumer.bytes)
        queue = consumer.queue
        # Remove the consumer first, so that nothing is delivered to a closing channel.
        if not queue.deleted:
            queue.unsubscribe(consumer)
        unacked = self._unacked
        self._unacked = {}
        if unacked:
            queue.begin_returns()
            while unacked:
                self._give_back(unacked.popitem()[1], failed)
                yield 1
            queue.end_returns()
        self._vhost.queues.end_unused(queue)
        yield 1

    # -- deliveries --------------------------------------------------------------------------------

    def deliver(self, consumer: QueueConsumer, message: Message, sequence: i64, count: i64) -> None:
        """Write the push of a message."""
        assert isinstance(consumer, HareConsumer)
        self.unacked_count += 1
        consumer.unacked_count += 1
        self.room.hold(message.size)
        message_id = self._id_of(consumer, message, sequence)
        key = consumer.key_prefix + message_id
        delivery = HareDelivery(self, consumer, key, message, sequence, count)
        if len(message.body) > BODY_APART_BYTES:
            self._push_long(delivery, message_id)
            return
        connection = self._connection
        output = self._output
        if consumer.auto_ack:
            self._pushes.to_ack.append(delivery)
        else:
            self._keep(delivery)
        # The cost of checking and copying the body.
        connection.scheduler.spent += 2 * len(message.body) // CONTENT_BYTES_PER_COST
        write_push(
            output.writer,
            self._pushes.package,
            consumer.prefix,
            self._text(message.body),
            message_id,
            DURABLE if message.persistent else UNDURABLE,
            self._text(message.address.routing_key),
        )
        self._pushed()

    def _pushed(self) -> None:
        """Wake the shell to send the output, and pause deliveries if the output is large."""
        output = self._output
        connection = self._connection
        if not connection.woken:
            connection.wake()
        if len(output.writer) + output.parts_bytes > OUTPUT_BYTES_HIGH:
            connection.writable = False
        # A push costs twice as much as an AMQP delivery, because its fields are checked as text.
        connection.scheduler.spent += 1

    def _push_long(self, delivery: HareDelivery, message_id: bytes) -> None:
        """Push a long body, at once or in slices; other deliveries wait until it is pushed."""
        # The delivery is unacked, and is requeued if the channel ends before it is pushed.
        self._keep(delivery)
        if len(delivery.message.body) > _PUSH_BODY_BYTES_MAX:
            self._note_long(delivery)
            return
        pushing = self._connection.scheduler.start(self._push_text(delivery, message_id))
        if not pushing.over:
            self._connection.writable = False

    def _push_text(self, delivery: HareDelivery, message_id: bytes) -> Iterator[int]:
        """Convert a long body to text and push it, unless it has been requeued or acked.

        The connection's account includes the memory of the text until the text is in the output.
        """
        connection = self._connection
        text = BodyText(delivery.message.body)
        booked: i64 = 0
        connection.preparing += 1
        while (
            self._awaits_push(delivery)
            and not text.is_over()
            and text.bytes <= _PUSH_BODY_BYTES_MAX
        ):
            cost = text.advance()
            connection.account.book(text.bytes_own - booked)
            booked = text.bytes_own
            yield int(cost)
        connection.scheduler.changes += 1
        connection.account.book(-booked)
        if self._awaits_push(delivery):
            self._write_long(delivery, message_id, text)
        # The shell resumes deliveries after it has taken the output.
        connection.preparing -= 1
        connection.wake()

    def _write_long(self, delivery: HareDelivery, message_id: bytes, text: BodyText) -> None:
        """Write a push with a long body."""
        consumer = delivery.consumer
        if text.garbled:
            self._note_garbled()
        if text.bytes > _PUSH_BODY_BYTES_MAX:
            self._note_long(delivery)
            return
        message = delivery.message
        output = self._output
        first, last = push_around(
            self._pushes.package,
            consumer.prefix,
            text,
            message_id,
            DURABLE if message.persistent else UNDURABLE,
            self._text(message.address.routing_key),
        )
        output.writer.write(first)
        for part in text.parts():
            output.write_apart(part, 0, len(part))
        output.writer.write(last)
        if consumer.auto_ack:
            self._forget(delivery)
            self._pushes.to_ack.append(delivery)
        self._pushed()

    def _awaits_push(self, delivery: HareDelivery) -> bool:
        """Return whether a push in progress is still needed."""
        if self._connection.finished or self.consumer is not delivery.consumer:
            return False
        return self._deliveries.get(delivery.key) is delivery

    def _note_long(self, delivery: HareDelivery) -> None:
        size = len(delivery.message.body)
        self._connection.log.append(("warning", f"a body of {size} bytes is too long to push"))

    def _keep(self, delivery: HareDelivery) -> None:
        self._unacked[delivery.key] = delivery
        self._key_bytes += len(delivery.key)
        self._deliveries[delivery.key] = delivery

    def _id_of(self, consumer: HareConsumer, message: Message, sequence: i64) -> bytes:
        """Return the id of a push: the message's own id if possible, otherwise a generated id."""
        by_key = self._deliveries
        prefix = consumer.key_prefix
        own = message_id_of(message.properties)
        if own and not own.startswith(_MADE) and prefix + own not in by_key:
            return own
        queue = consumer.queue
        number = int(queue.queue_id) if isinstance(queue, Queue) else 0
        made = _MADE + b"%d-%d" % (number, int(sequence))
        # Another consumer of a stream may have the same message unacked.
        return made if prefix + made not in by_key else made + b"-%d" % int(consumer.number)

    def _text(self, raw: bytes) -> bytes:
        """Return `raw` as valid UTF-8, with invalid bytes replaced by U+FFFD."""
        if is_text(raw):
            return raw
        # Decoding and encoding may triple the size.
        self._connection.scheduler.spent += len(raw) // TABLE_BYTES_PER_COST
        self._note_garbled()
        return raw.decode("utf-8", "replace").encode()

    def _note_garbled(self) -> None:
        if not self._garbled:
            self._garbled = True
            self._connection.log.append(
                ("warning", "a message is not UTF-8: its invalid bytes are pushed as U+FFFD")
            )

    # -- acks --------------------------------------------------------------------------------------

    def hears(self, delivery: HareDelivery) -> bool:
        """Return whether an ack that arrives on this channel can be for `delivery`.

        Clients ack even deliveries with automatic acks; such an ack must not settle another
        channel's delivery with the same id.
        """
        consumer = self.consumer
        if consumer is None or not consumer.auto_ack or delivery.channel is self:
            return True
        return consumer.queue is not delivery.queue

    def ack(self, delivery: HareDelivery) -> None:
        """Ack a delivery of this channel."""
        self._forget(delivery)
        self.settle(delivery)

    def _forget(self, delivery: HareDelivery) -> None:
        """Remove a delivery from the tables of unacked deliveries."""
        del self._deliveries[delivery.key]
        self._key_bytes -= len(delivery.key)
        # While `end` requeues the deliveries, this one may already be absent from `_unacked`.
        # `_give_back` then does not requeue it.
        self._unacked.pop(delivery.key, None)

    def settle(self, delivery: HareDelivery) -> None:
        """Ack a delivery that is in no table."""
        delivery.queue.ack(delivery.sequence, delivery.message)
        self._credit(delivery)

    def _credit(self, delivery: HareDelivery) -> None:
        self.unacked_count -= 1
        self.room.bytes -= delivery.message.size + MESSAGE_OVERHEAD_BYTES
        delivery.consumer.unacked_count -= 1
        queue = delivery.queue
        if not queue.scheduled:
            queue.schedule()

    def _give_back(self, delivery: HareDelivery, failed: bool) -> None:
        """Requeue a delivery, unless it has been acked meanwhile."""
        by_key = self._deliveries
        if by_key.get(delivery.key) is delivery:
            del by_key[delivery.key]
            self._key_bytes -= len(delivery.key)
            delivery.queue.requeue(delivery.sequence, delivery.message, delivery.count, failed)
            self._credit(delivery)


def message_id_of(properties: bytes) -> bytes:
    """Return the message id in encoded properties, or b"" if it is absent or not UTF-8."""
    if i64(properties[1]) & MESSAGE_ID == 0:
        return b""
    flags: i64 = i64(properties[0]) << 8 | i64(properties[1])
    try:
        at = property_place(properties, flags, MESSAGE_ID)
    except AmqpError:
        return b""
    found = properties[at + 1 : at + 1 + i64(properties[at])]
    return found if is_text(found) else b""
