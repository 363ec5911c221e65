"""A channel of a connection, with its consumers and deliveries.

Queues deliver to a channel.  Its parts are the unacked deliveries, the confirms, the incoming
content and the open transaction.  Closing a channel is a long operation, in `release.py`.

Invariant: a delivery tag is used once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.window import TAKEN
from leveret.broker.consumers.consumer import DeliveryChannel, QueueConsumer
from leveret.broker.scheduler.costs import DROPPED_PER_COST
from leveret.limits import (
    CONTENT_BYTES_PER_COST,
    MESSAGE_OVERHEAD_BYTES,
    OUTPUT_BYTES_HIGH,
    TABLE_BYTES_PER_COST,
)
from leveret.names import Name
from leveret.session.channel.confirms import Confirms
from leveret.session.channel.consumer_timeout import ConsumerTimeout, ReturnedSource
from leveret.session.channel.content import IncomingContent
from leveret.session.channel.delivery_headers import with_delivery_headers
from leveret.session.channel.transaction import Transaction
from leveret.session.channel.unacked import ACK, REJECT, RETRY, Unacked, UnackedList
from leveret.session.connection_base import ConnectionBase
from leveret.store.records.returns import is_redelivered
from leveret.wire.content.output import content_cost
from leveret.wire.methods import BasicCancel

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message

#: The mode of a channel: none, confirm (confirm.select) or transactional (tx.select).
PLAIN: Final = 0
CONFIRM: Final = 1
TX: Final = 2


@final
class ServerChannel(DeliveryChannel):
    """One channel of a connection."""

    def __init__(
        self, connection: ConnectionBase, number: i64, vhost: Vhost, settled: list[Confirms]
    ) -> None:
        super().__init__(connection)
        self.connection = connection
        self.output = connection.output
        self.number: i64 = number
        self.vhost = vhost
        #: True while the channel closes and its frames are dropped (behaviour 15: until close-ok).
        self.closing = False
        self.mode: i64 = PLAIN
        #: True once a message was published on the channel.
        self.publishes = False
        self.consumers: dict[str, QueueConsumer] = {}
        #: basic.qos: the prefetch of consumers added from now on; 0 means no limit.
        self.prefetch_next: i64 = 0
        #: The queue declared last, which an empty name refers to.
        self.last_queue = Name("")
        #: The direct reply-to queue, once the channel consumes from it (`vhost.replies`).
        self.replies: Queue | None = None
        self.delivery_tag: i64 = 0
        self.unacked = UnackedList()
        self.consumer_timeout = ConsumerTimeout(self.unacked)
        #: Replaces the queue in deliveries that were requeued because their acks were late.
        self._returned: ReturnedSource | None = None
        self.confirms = Confirms(connection, number, settled)
        self.content = IncomingContent(connection)
        self.transaction = Transaction(connection)

    # -- consumers ---------------------------------------------------------------------------------

    def offer(self) -> None:
        """Schedule the queues of all consumers, because there is room for deliveries."""
        self.connection.scheduler.spent += len(self.consumers) // 8
        for consumer in self.consumers.values():
            consumer.queue.schedule()

    def add_consumer(self, consumer: QueueConsumer) -> None:
        """Add a subscribed consumer."""
        self.consumers[consumer.tag] = consumer
        self.connection.account.book(consumer.bytes)

    def take_consumer(self, tag: str) -> QueueConsumer | None:
        """Remove and return the consumer with `tag`, if any."""
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            self.connection.account.book(-consumer.bytes)
        return consumer

    def awaits_reply(self) -> bool:
        """Return whether the channel is open, so that the client may be waiting for a reply."""
        return not self.closing and self.connection.awaits_reply()

    # -- deliveries -------------------------------------------------------------------------------

    def deliver(self, consumer: QueueConsumer, message: Message, sequence: i64, count: i64) -> None:
        """Write a basic.deliver with its content."""
        tag: i64 = self.delivery_tag + 1
        self.delivery_tag = tag
        if not consumer.no_ack:
            self.unacked.add(Unacked(tag, consumer.queue, consumer, message, sequence, count))
            self.unacked_count += 1
            consumer.unacked_count += 1
            self.room.hold(message.size)
        properties = message.properties
        if consumer.queue.adds_headers:
            properties = with_delivery_headers(consumer.queue, message, sequence, count)
            self.connection.scheduler.spent += i64(len(message.properties)) // TABLE_BYTES_PER_COST
        if len(properties) + len(message.body) >= CONTENT_BYTES_PER_COST:
            self.connection.scheduler.spent += content_cost(properties, message.body)
        output = self.output
        output.write_delivery(
            self.number,
            consumer.prefix,
            tag,
            is_redelivered(count),
            message.address.wire,
            properties,
            message.body,
        )
        connection = self.connection
        if not connection.woken:
            connection.wake()
        if len(output.writer) + output.parts_bytes > OUTPUT_BYTES_HIGH:
            connection.writable = False

    def hand_over(
        self, queue: Queue, message: Message, sequence: i64, count: i64, no_ack: bool
    ) -> i64:
        """Count a delivery by basic.get and return its tag."""
        self.delivery_tag += 1
        tag = self.delivery_tag
        if not no_ack:
            self.unacked.add(Unacked(tag, queue, None, message, sequence, count))
            self.room.hold(message.size)
            if self.connection.core.consumer_timeout_ms_min > 0:
                self.connection.wake()
        return tag

    def open_consumers(self) -> list[QueueConsumer]:
        """Return the channel's consumers."""
        return list(self.consumers.values())

    def has(self, consumer: QueueConsumer) -> bool:
        """Return whether a consumer of this channel has not ended."""
        return self.consumers.get(consumer.tag) is consumer

    def cancelled(self, consumer: QueueConsumer) -> None:
        """Send a basic.cancel for a consumer that the broker ended (behaviour 54: server cancels).

        Only clients with the capability get it.  Nothing is sent if the client has cancelled the
        consumer itself, even if it has reused the tag.
        """
        if self.consumers.get(consumer.tag) is not consumer:
            return
        self.take_consumer(consumer.tag)
        if self.connection.capabilities.cancel_notify and not self.closing:
            self.connection.send(self.number, BasicCancel(consumer.tag, True))

    def time_out(self, late: list[Unacked]) -> Unacked | None:
        """Cancel the consumers of `late` deliveries, and requeue these deliveries.

        If no basic.cancel can be sent for one of the deliveries, change nothing and return that
        delivery.  This is the case for a delivery by basic.get, for one to a consumer that the
        client has cancelled, and for any delivery if the client lacks the capability.
        """
        for unacked in late:
            consumer = unacked.consumer
            if consumer is None or not (consumer.timed_out or self._may_cancel(consumer)):
                return unacked
        core = self.connection.core
        core.scheduler.changes += 1
        core.scheduler.spent += len(late)
        for unacked in late:
            consumer = unacked.consumer
            if consumer is not None and not consumer.timed_out:
                consumer.timed_out = True
                self.vhost.queues.unsubscribe(consumer)
                self.cancelled(consumer)
        if self._returned is None:
            self._returned = ReturnedSource(core)
        holder = QueueConsumer(self, self._returned, "", False, False, 0, {})
        for unacked in late:
            self._give_up(unacked, holder)
        return None

    def _may_cancel(self, consumer: QueueConsumer) -> bool:
        """Return whether the consumer exists and a basic.cancel can be sent for it."""
        is_there = self.consumers.get(consumer.tag) is consumer
        return is_there and self.connection.capabilities.cancel_notify

    def _give_up(self, unacked: Unacked, holder: QueueConsumer) -> None:
        """Requeue a delivery; a late ack of it is accepted and ignored."""
        consumer = unacked.consumer
        if consumer is not None:
            # The next single active consumer waits until the previous one has nothing unacked.
            consumer.unacked_count -= 1
            holder.unacked_count += 1
            unacked.consumer = holder
        unacked.queue.requeue(unacked.sequence, unacked.message, unacked.count)
        self.room.bytes -= unacked.message.size
        unacked.queue = holder.queue
        unacked.message = TAKEN

    # -- acks -------------------------------------------------------------------------------------

    def credit(self, unacked: Unacked) -> None:
        """Return the credit of a settled delivery, and schedule its queue to deliver more."""
        self.room.bytes -= unacked.message.size + MESSAGE_OVERHEAD_BYTES
        consumer = unacked.consumer
        if consumer is not None:
            # Deliveries by basic.get do not count towards a prefetch, as in RabbitMQ.
            self.unacked_count -= 1
            consumer.unacked_count -= 1
        queue = unacked.queue
        if not queue.scheduled:
            queue.schedule()

    def settle(self, settled: list[Unacked], outcome: i64) -> None:
        """Ack, requeue or reject deliveries that were removed from the unacked list."""
        for unacked in settled:
            queue = unacked.queue
            if outcome == ACK:
                queue.ack(unacked.sequence, unacked.message)
            elif outcome == REJECT:
                queue.reject(unacked.sequence, unacked.message, unacked.count)
            else:
                failed = outcome == RETRY
                queue.requeue(unacked.sequence, unacked.message, unacked.count, failed)
            self.credit(unacked)
        if self.prefetch_count > 0:
            self.offer()

    def take_transaction(self) -> Transaction:
        """Return the open transaction, for a commit or rollback, and open the next one."""
        transaction = self.transaction
        self.transaction = Transaction(self.connection)
        self.connection.end_assembly(transaction.booked)
        return transaction

    def roll_back(self) -> None:
        """Drop the publishes of the transaction; the deliveries it settled are unacked again."""
        transaction = self.take_transaction()
        unacked = [one for settle in transaction.settles for one in settle.unacked]
        scheduler = self.connection.scheduler
        scheduler.changes += 1
        scheduler.spent += len(unacked) + len(transaction.publishes) // DROPPED_PER_COST
        self.unacked.restore(unacked)
        for publish in transaction.publishes:
            if publish.commit is not None:
                publish.commit.unseal()

    # -- the end ----------------------------------------------------------------------------------

    def end(self) -> list[QueueConsumer]:
        """Drop all further input; return the consumers, for the caller to remove and end.

        The deliveries settled in an open transaction are unacked again (`release.py`).
        """
        self.closing = True
        core = self.connection.core
        core.scheduler.changes += 1
        self.confirms.end()
        consumers = list(self.consumers.values())
        core.scheduler.spent += len(consumers) // 64
        self.roll_back()
        self.content.end()
        return consumers
