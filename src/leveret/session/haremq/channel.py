"""A channel of a HareMQ connection, and the one consumer that it may have.

A message that is given to a consumer is a *push* of the protocol: a basicConsumeResponse.  Its id
is the `message_id` of the message where that is text and no other delivery of the queue has it,
else one of the broker's own, so that an ack means one delivery.  A message's own id is never one
that the broker may make, so that nobody takes these before.  With automatic acks the message is
acked when its push leaves for the socket.

HareMQ's ack names a queue and a message, and comes from any channel of any connection.  So what
waits for its ack is in one register of all connections that the listener accepted, who have one
vhost and one user.

Invariants: a channel that is closed gets no push; a consumer gets none before, or in the same write
as, the answer to its request; a delivery in the register is in its channel's list too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.accounts import (
    HARE_CHANNEL_BYTES,
    HARE_CONSUMER_BYTES,
    HARE_UNACKED_BYTES,
)
from leveret.broker.queue.consumer import Consumer, DeliveryChannel, Source
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import MESSAGES_PER_COST
from leveret.broker.scheduler.timers import Timed
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError
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
from leveret.wire.haremq.body_text import BodyText
from leveret.wire.haremq.fields import (
    DURABLE,
    UNDURABLE,
    is_text,
    push_around,
    push_prefix,
    write_push,
)
from leveret.wire.haremq.frames import HARE_MQ
from leveret.wire.properties import MESSAGE_ID, property_place

#: The longest text of a push; the rest of its frame is a few ids and names.
_PUSH_BODY_BYTES_MAX: Final = HAREMQ_FRAME_BYTES_MAX - 16_384

#: What the ids begin with that the broker makes.
_MADE: Final = b"leveret-"


#: Times of the clock, in ms, from the write of the answer to the first push: one to be sure that
#: the write is done, and two of which at least one is whole.
WRITTEN_MS: Final = 1
_PUSH_DELAY_MS: Final = 2


def queue_prefix(queue_name: bytes) -> bytes:
    """Return what the keys of a queue's deliveries begin with; no UTF-8 has the byte behind it."""
    return queue_name + b"\xff"


@final
class HareConsumer(Consumer):
    """The consumer of a channel; it takes nothing until its answer has been out for a while."""

    def __init__(self, channel: HareChannel, queue: Source, tag: str, auto_ack: bool) -> None:
        # To the queue it always acks: what cannot be pushed is given back then too.
        super().__init__(channel, queue, tag, False, False, HAREMQ_UNACKED_MAX, {})
        self.auto_ack = auto_ack
        self.prefix = push_prefix(channel.cid, tag.encode())
        self.key_prefix = queue_prefix(queue.name.encode())
        self.is_held = True
        self.bytes += HARE_CONSUMER_BYTES + len(self.prefix) + len(self.key_prefix)

    def ready(self) -> bool:
        """Return whether it can take one more message now."""
        return not self.is_held and super().ready()

    def begin(self) -> None:
        """Take messages from now on."""
        self.is_held = False
        if not self.queue.deleted:
            self.queue.schedule()


@final
class Hold(Timed):
    """Waits for the time of the first push to a consumer, from when its answer left."""

    def __init__(self, consumer: HareConsumer) -> None:
        super().__init__()
        self._consumer: Final = consumer
        self._written = False

    def due(self, now_ms: i64) -> None:
        """Note that the answer is written by now, or begin."""
        if self._written:
            self._consumer.begin()
        else:
            # It was being written, in a batch that may have begun long ago.
            self._written = True
            self._consumer.queue.core.timers.set(self, now_ms + _PUSH_DELAY_MS)


@final
class HareDelivery:
    """One message that a consumer of a channel was given; its key is of its queue and its id."""

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
    """How a connection's messages are pushed, and what is acked when they are sent."""

    def __init__(self) -> None:
        #: The package of the pushes' names.
        self.package = HARE_MQ
        self.to_ack: list[HareDelivery] = []

    def ack(self) -> None:
        """Ack what was pushed with automatic acks."""
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
    """One channel."""

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
        #: Its deliveries that wait for their ack, the oldest first.
        self._unacked: dict[bytes, HareDelivery] = {}
        #: The bytes of the keys of these.
        self._key_bytes: i64 = 0
        self._garbled = False

    # -- its memory --------------------------------------------------------------------------------

    def memory(self) -> i64:
        """Return the memory of a channel without a consumer and deliveries."""
        return HARE_CHANNEL_BYTES + len(self.cid)

    def unacked_bytes(self) -> i64:
        """Return what deliveries take, beside their messages, that wait for their ack."""
        return self.unacked_count * HARE_UNACKED_BYTES + self._key_bytes

    # -- its consumer ------------------------------------------------------------------------------

    def consume(self, consumer: HareConsumer, where: str) -> None:
        """Subscribe a consumer; there is none.  Raises: as `Source.subscribe`."""
        consumer.queue.subscribe(consumer, where)
        self.consumer = consumer
        self.link.account.book(consumer.bytes)

    def cancel(self) -> None:
        """End the consumer, and give back what it has not acked."""
        self.link.scheduler.start(self.end(False))

    def cancelled(self, consumer: Consumer) -> None:
        """Forget a consumer whose queue was deleted: the protocol has no message for that."""
        if self.consumer is consumer:
            # What it holds went with the queue.
            self.cancel()

    def end(self, failed: bool) -> Iterator[int]:
        """End the consumer and requeue what it has not acked; `failed` as `Source.requeue` has it.

        Its queue delivers when all is back, so that it comes in the old order.  An auto-delete
        queue ends then, if nobody else consumes from it.
        """
        consumer = self.consumer
        if consumer is None:
            # Each consumer takes all its deliveries with it.
            return
        self.consumer = None
        self.link.account.book(-consumer.bytes)
        queue = consumer.queue
        # The consumer goes first, so that nothing is handed to a channel that ends.
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

    def deliver(self, consumer: Consumer, message: Message, sequence: i64, count: i64) -> None:
        """Write a push."""
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
        # It is made a text first.
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
        """Have the shell take the output; deliver no more where it is much."""
        output = self._output
        connection = self._connection
        if not connection.woken:
            connection.wake()
        if len(output.writer) + output.parts_bytes > OUTPUT_BYTES_HIGH:
            connection.writable = False
        # A push is as much again as a delivery: its fields are texts.
        connection.scheduler.spent += 1

    def _push_long(self, delivery: HareDelivery, message_id: bytes) -> None:
        """Push a long body, now or in later turns; nothing else is delivered before."""
        # It is given back with what else is unacked if the channel ends before, or if it is not
        # pushed.
        self._keep(delivery)
        if len(delivery.message.body) > _PUSH_BODY_BYTES_MAX:
            self._note_long(delivery)
            return
        pushing = self._connection.scheduler.start(self._push_text(delivery, message_id))
        if not pushing.over:
            self._connection.writable = False

    def _push_text(self, delivery: HareDelivery, message_id: bytes) -> Iterator[int]:
        """Make the text of a long body, and push it, unless it is given back or acked meanwhile.

        What is converted is booked by the connection until it is in the output.
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
        # The shell has deliveries go on after its next look.
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
        """Return whether a push that is being made would still mean something."""
        if self._connection.finished or self.consumer is not delivery.consumer:
            return False
        return self._deliveries.get(delivery.key) is delivery

    def _note_long(self, delivery: HareDelivery) -> None:
        size = len(delivery.message.body)
        self._connection.log.append(("warning", f"a body of {size} bytes is too long to be pushed"))

    def _keep(self, delivery: HareDelivery) -> None:
        self._unacked[delivery.key] = delivery
        self._key_bytes += len(delivery.key)
        self._deliveries[delivery.key] = delivery

    def _id_of(self, consumer: HareConsumer, message: Message, sequence: i64) -> bytes:
        """Return the id of a push: the message's own, if it can be."""
        by_key = self._deliveries
        prefix = consumer.key_prefix
        own = message_id_of(message.properties)
        if own and not own.startswith(_MADE) and prefix + own not in by_key:
            return own
        queue = consumer.queue
        number = int(queue.queue_id) if isinstance(queue, Queue) else 0
        made = _MADE + b"%d-%d" % (number, int(sequence))
        # Of a stream others may hold the same message.
        return made if prefix + made not in by_key else made + b"-%d" % int(consumer.number)

    def _text(self, raw: bytes) -> bytes:
        """Return bytes as text: what is no UTF-8 in them becomes U+FFFD."""
        if is_text(raw):
            return raw
        # It is decoded and encoded again, and may take three times its bytes then.
        self._connection.scheduler.spent += len(raw) // TABLE_BYTES_PER_COST
        self._note_garbled()
        return raw.decode("utf-8", "replace").encode()

    def _note_garbled(self) -> None:
        if not self._garbled:
            self._garbled = True
            self._connection.log.append(
                ("warning", "a message that is not UTF-8 is pushed with U+FFFD for what is no text")
            )

    # -- acks --------------------------------------------------------------------------------------

    def hears(self, delivery: HareDelivery) -> bool:
        """Return whether an ack of the client on this channel means a delivery.

        The client acks what it got with automatic acks too; it cannot mean another's of that id.
        """
        consumer = self.consumer
        if consumer is None or not consumer.auto_ack or delivery.channel is self:
            return True
        return consumer.queue is not delivery.queue

    def ack(self, delivery: HareDelivery) -> None:
        """Ack one of its deliveries."""
        self._forget(delivery)
        self.settle(delivery)

    def _forget(self, delivery: HareDelivery) -> None:
        """Take a delivery out of the lists of those that wait for their ack."""
        del self._deliveries[delivery.key]
        self._key_bytes -= len(delivery.key)
        # It may be on its way back, which ends here.
        self._unacked.pop(delivery.key, None)

    def settle(self, delivery: HareDelivery) -> None:
        """Ack a delivery that is in no list any more."""
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
        """Requeue one delivery, unless it was acked meanwhile."""
        by_key = self._deliveries
        if by_key.get(delivery.key) is delivery:
            del by_key[delivery.key]
            self._key_bytes -= len(delivery.key)
            delivery.queue.requeue(delivery.sequence, delivery.message, delivery.count, failed)
            self._credit(delivery)


def message_id_of(properties: bytes) -> bytes:
    """Return the message id among properties; b"" where there is none that is text."""
    if i64(properties[1]) & MESSAGE_ID == 0:
        return b""
    flags: i64 = i64(properties[0]) << 8 | i64(properties[1])
    try:
        at = property_place(properties, flags, MESSAGE_ID)
    except AmqpError:
        return b""
    found = properties[at + 1 : at + 1 + i64(properties[at])]
    return found if is_text(found) else b""
