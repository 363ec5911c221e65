"""A channel: what a client opened on a connection, its deliveries, acks and confirms.

The channel is the outlet that queues deliver to.  It writes frames into its connection's buffer.

Invariants: a delivery tag is used once; a confirm is written only for publishes that are settled,
and a publish that a journal record holds is settled when the record's group is synced.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from mypy_extensions import i16, i32, i64

from leveret.broker.queue.consumer import Consumer, Outlet
from leveret.broker.vhost.vhost import DUPLICATE, RECORDED, REJECTED
from leveret.errors import PreconditionFailed, ResourceFault
from leveret.limits import BODY_APART_BYTES, TX_BYTES_MAX, TX_MESSAGES_MAX
from leveret.names import Name
from leveret.session.channel.delivery_headers import own_headers
from leveret.session.channel.unacked import Unacked, UnackedList
from leveret.session.connection.alarm import check_room
from leveret.wire.buffer import write_i16_be, write_i32_be, write_i64_be
from leveret.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, write_method
from leveret.wire.methods import BasicAck, BasicCancel, BasicNack

if TYPE_CHECKING:
    from leveret.broker.queue.queue import Queue
    from leveret.broker.staging.commit import Commit
    from leveret.broker.staging.staging import Staging
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message
    from leveret.session.connection.connection import Connection

#: What a channel does with publishes beyond routing them.
PLAIN: Final = 0
CONFIRM: Final = 1
TX: Final = 2

#: No content is awaited; a header; body frames.
NO_CONTENT: Final = 0
HEADER_NEXT: Final = 1
BODY_NEXT: Final = 2


#: What becomes of a delivery that is settled.
ACK: Final = 0
REQUEUE: Final = 1
REJECT: Final = 2
#: Rejected to be tried again: a requeue that counts as a failure.
RETRY: Final = 3


class TxPublish:
    """A publish that waits for its transaction's commit; one to a staging queue, or a commit."""

    def __init__(
        self,
        message: Message,
        queues: list[Queue],
        mandatory: bool,
        staging: Staging | None = None,
        commit: Commit | None = None,
        immediate: bool = False,
    ) -> None:
        self.message = message
        self.queues = queues
        self.mandatory = mandatory
        self.staging = staging
        self.commit = commit
        self.immediate = immediate


class TxSettle:
    """An ack, nack or reject that waits for its transaction's commit."""

    def __init__(self, unacked: list[Unacked], outcome: i64) -> None:
        self.unacked = unacked
        #: ACK, REQUEUE, REJECT or RETRY.
        self.outcome: i64 = outcome


class Channel(Outlet):
    """One channel of a connection."""

    def __init__(self, connection: Connection, number: i64, vhost: Vhost) -> None:
        super().__init__(connection)
        self.connection = connection
        self.number: i64 = number
        self.vhost = vhost
        #: True once a channel.close was sent: all but its close-ok is dropped (behaviour 15).
        self.closing = False
        self.mode: i64 = PLAIN
        self.consumers: dict[str, Consumer] = {}
        #: basic.qos for the consumers to come.
        self.prefetch_next: i64 = 0
        self.last_queue = Name("")
        #: Where replies to its requests arrive, once it consumes them (`broker.replies`).
        self.replies: Queue | None = None
        # Deliveries.
        self.delivery_tag: i64 = 0
        self.unacked = UnackedList()
        #: Times (monotonic ms) with the newest tag of that moment: see `consumer_timeout`.
        self.marks: list[tuple[int, int]] = []
        # Confirms.
        self.published: i64 = 0
        self.settled: i64 = 0
        self.confirmed: i64 = 0
        #: Publishes that wait for a sync: (group, last publish of it), in order.
        self.unsynced: list[tuple[i64, i64]] = []
        #: Publishes that a queue refused and nobody was told of: (first, last), in order.
        self.refused: list[tuple[i64, i64]] = []
        self.confirm_listed = False
        # The content that is being assembled.
        self.content_state: i64 = NO_CONTENT
        self.content_arguments = b""
        self.content_properties = b""
        self.content_persistent = False
        self.content_left: i64 = 0
        #: What came of a body of several frames.
        self.content_body: BytesIO | None = None
        self.content_bytes: i64 = 0
        # The open transaction.
        self.tx_publishes: list[TxPublish] = []
        self.tx_settles: list[TxSettle] = []
        #: False when the user's rights changed since something of it was allowed.
        self.tx_judged = True
        self.tx_bytes: i64 = 0
        #: Of the largest message among them.
        self.tx_largest: i64 = 0
        #: The commit of a batch that is looked at; the connection stands still meanwhile.
        self.commit: Commit | None = None

    # -- deliveries -------------------------------------------------------------------------------

    def deliver(self, consumer: Consumer, message: Message, sequence: i64, count: i64) -> None:
        """Write a basic.deliver with its content."""
        tag: i64 = self.delivery_tag + 1
        self.delivery_tag = tag
        if not consumer.no_ack:
            self.unacked.add(Unacked(tag, consumer.queue, consumer, message, sequence, count))
            self.unacked_count += 1
            consumer.unacked_count += 1
        properties = message.properties
        if consumer.queue.adds_headers:
            properties = own_headers(consumer.queue, message, sequence, count)
        connection = self.connection
        w = connection.out
        prefix = consumer.prefix
        address = message.address.wire
        number: i64 = self.number
        w.append(FRAME_METHOD)
        write_i16_be(w, i16(number))
        write_i32_be(w, i32(len(prefix) + len(address) + 9))
        w.write(prefix)
        write_i64_be(w, tag)
        w.append(1 if count != 0 else 0)
        w.write(address)
        w.append(FRAME_END)
        self.write_content(properties, message.body)
        connection.delivered_out()

    def write_content(self, properties: bytes, body: bytes) -> None:
        """Write the header frame and the body frames of a message."""
        connection = self.connection
        w = connection.out
        number: i64 = self.number
        size: i64 = len(body)
        w.append(FRAME_HEADER)
        write_i16_be(w, i16(number))
        write_i32_be(w, i32(len(properties) + 12))
        write_i32_be(w, 60 << 16)
        write_i64_be(w, size)
        w.write(properties)
        w.append(FRAME_END)
        piece_max: i64 = connection.body_bytes_max
        if size == 0:
            return
        if size <= piece_max and size < BODY_APART_BYTES:
            w.append(FRAME_BODY)
            write_i16_be(w, i16(number))
            write_i32_be(w, i32(size))
            w.write(body)
            w.append(FRAME_END)
            return
        start: i64 = 0
        while start < size:
            end: i64 = min(start + piece_max, size)
            w = connection.out
            w.append(FRAME_BODY)
            write_i16_be(w, i16(number))
            write_i32_be(w, i32(end - start))
            connection.write_apart(body, start, end)
            connection.out.append(FRAME_END)
            start = end

    def cancelled(self, consumer: Consumer) -> None:
        """Tell the client that the broker ended a consumer, if it wants to know (behaviour 54).

        The client may have cancelled it first, and given its tag to another.
        """
        if self.consumers.get(consumer.tag) is not consumer:
            return
        del self.consumers[consumer.tag]
        if self.connection.cancel_notify and not self.closing:
            self.connection.send(self.number, BasicCancel(consumer.tag, True))

    # -- acks -------------------------------------------------------------------------------------

    def credit(self, unacked: Unacked) -> None:
        """Give the credit of a settled delivery back; the queue may have more for it."""
        consumer = unacked.consumer
        if consumer is not None:
            # What basic.get took has no part in a prefetch, as in RabbitMQ.
            self.unacked_count -= 1
            consumer.unacked_count -= 1
        queue = unacked.queue
        if not queue.listed:
            queue.mark()
        if self.prefetch_count > 0:
            for other in self.consumers.values():
                other.queue.mark()

    def settle(self, settled: list[Unacked], outcome: i64) -> None:
        """Ack, requeue or reject deliveries that were taken off the list."""
        if outcome == ACK:
            self.let_go(settled)
        elif outcome == REQUEUE:
            self.requeue(settled, False)
        elif outcome == RETRY:
            self.requeue(settled, True)
        else:
            for unacked in settled:
                unacked.queue.reject(unacked.sequence, unacked.message, unacked.count)
                self.credit(unacked)

    def let_go(self, settled: list[Unacked]) -> None:
        """Ack deliveries that were taken off the list."""
        for unacked in settled:
            unacked.queue.ack(unacked.sequence, unacked.message)
            self.credit(unacked)

    def requeue(self, settled: list[Unacked], failed: bool) -> None:
        """Requeue deliveries that were taken off the list; `failed` as `Queue.requeue` has it."""
        for unacked in settled:
            unacked.queue.requeue(unacked.sequence, unacked.message, unacked.count, failed)
            self.credit(unacked)

    # -- confirms ---------------------------------------------------------------------------------

    def count_publish(self, outcome: i64) -> None:
        """Count a publish of a confirming channel; a recorded one waits for its sync.

        `outcome` is what `Vhost.publish` returned.
        """
        number: i64 = self.published + 1
        self.published = number
        if outcome & REJECTED:
            self.refuse(number)
        unsynced = self.unsynced
        group = self._group_of(outcome)
        if group > 0:
            if not unsynced:
                unsynced.append((group, number))
                self.connection.turn.wait(self, group)
            elif unsynced[-1][0] == group:
                unsynced[-1] = (group, number)
            else:
                unsynced.append((group, number))
        elif unsynced:
            # Confirms go out in order: this one follows those that wait.
            unsynced[-1] = (unsynced[-1][0], number)
        else:
            self.settled = number
            self.list_confirm()

    def _group_of(self, outcome: i64) -> i64:
        """Return the group that holds a publish, or what it is a duplicate of; 0 for none."""
        journal = self.connection.turn.journal
        if outcome & RECORDED:
            return journal.group
        if outcome & DUPLICATE:
            group = journal.group if journal.has_records() else journal.group - 1
            return group if group > journal.durable_group else 0
        return 0

    def refuse(self, number: i64) -> None:
        """Note that a queue refused the newest publish: its confirm is a basic.nack."""
        refused = self.refused
        if refused and refused[-1][1] == number - 1:
            refused[-1] = (refused[-1][0], number)
        else:
            refused.append((number, number))

    def list_confirm(self) -> None:
        """Have the confirms written at the end of the batch."""
        if not self.confirm_listed:
            self.confirm_listed = True
            self.connection.confirming.append(self)

    def synced(self, group: i64) -> None:
        """Settle what the synced groups hold and write the confirm."""
        unsynced = self.unsynced
        done: i64 = 0
        size: i64 = len(unsynced)
        while done < size and unsynced[done][0] <= group:
            self.settled = unsynced[done][1]
            done += 1
        del unsynced[:done]
        if unsynced:
            self.connection.turn.wait(self, unsynced[0][0])
        self.write_confirms()
        self.connection.wake()

    def write_confirms(self) -> None:
        """Tell what became of all publishes that were settled since the last time."""
        self.confirm_listed = False
        if self.closing:
            return
        while self.refused and self.refused[0][0] <= self.settled:
            first, last = self.refused[0]
            self._confirm(first - 1, False)
            if last > self.settled:
                self.refused[0] = (self.settled + 1, last)
                last = self.settled
            else:
                del self.refused[0]
            self._confirm(last, True)
        self._confirm(self.settled, False)

    def _confirm(self, last: i64, refused: bool) -> None:
        """Write one basic.ack, or nack, for the publishes up to `last` that have none yet.

        In order, so that `multiple` never stands for one of the other kind.
        """
        size: i64 = last - self.confirmed
        if size <= 0:
            return
        self.confirmed = last
        tag = int(last)
        method = BasicNack(tag, size > 1, True) if refused else BasicAck(tag, size > 1)
        write_method(self.connection.out, self.number, method)
        self.connection.confirms_sent += 1

    def assemble(self, size: i64) -> None:
        """Count bytes that wait for their content's end or their transaction's commit.

        Raises: ResourceFault (506) when the connection holds too much of that, or the broker has
        no memory left even for what was begun.
        """
        connection = self.connection
        self._count_assembling(size)
        most = connection.assembling_bytes_max
        if connection.assembling_bytes > most:
            raise ResourceFault(f"a connection's contents and transactions hold {most} bytes")
        if connection.broker.blocked:
            check_room(connection)

    def _count_assembling(self, size: i64) -> None:
        self.connection.assembling_bytes += size
        self.connection.turn.assembling_bytes += size

    def end_content(self) -> None:
        """Await no more of a content."""
        self.content_state = NO_CONTENT
        self.content_body = None
        if self.content_bytes > 0:
            self._count_assembling(-self.content_bytes)
            self.content_bytes = 0

    def hold(self, publish: TxPublish) -> None:
        """Keep a publish for the transaction's commit.

        Raises: PreconditionFailed (406) for too many; ResourceFault (506) as `assemble`.
        """
        size: i64 = publish.message.size
        self.tx_bytes += size
        self.tx_largest = max(self.tx_largest, size)
        self.assemble(size)
        over = self.tx_bytes - self.tx_largest > TX_BYTES_MAX
        if over or len(self.tx_publishes) >= TX_MESSAGES_MAX:
            raise PreconditionFailed(
                f"a transaction holds at most {TX_MESSAGES_MAX} messages, and {TX_BYTES_MAX} bytes "
                "beside its largest message"
            )
        self.tx_publishes.append(publish)

    def abandon_tx(self) -> None:
        """Start an empty transaction; what was to be committed is not."""
        self.connection.turn.changes += 1
        for publish in self.tx_publishes:
            if publish.commit is not None:
                publish.commit.unseal()
        self.end_tx()

    def end_tx(self) -> None:
        """Start an empty transaction."""
        self._count_assembling(-self.tx_bytes)
        self.tx_publishes = []
        self.tx_settles = []
        self.tx_judged = True
        self.tx_bytes = 0
        self.tx_largest = 0

    # -- the end ----------------------------------------------------------------------------------

    def release(self) -> None:
        """End the consumers and requeue what is unacked, because the channel ends."""
        self.connection.turn.changes += 1
        consumers = list(self.consumers.values())
        self.consumers.clear()
        settled = [unacked for tx in self.tx_settles for unacked in tx.unacked]
        self.abandon_tx()
        if self.commit is not None:
            self.commit.abandoned = True
            self.commit.mark()
        # Consumers go first, so that nothing is handed to a channel that ends.
        for consumer in consumers:
            queue = consumer.queue
            if not queue.deleted:
                queue.unsubscribe(consumer)
        if self.replies is not None:
            self.vhost.drop_queue(self.replies)
        self.requeue(settled, True)
        self.requeue(self.unacked.take_all(), True)
        for consumer in consumers:
            queue = consumer.queue
            if not queue.deleted and queue.auto_delete and not queue.consumers:
                self.vhost.drop_queue(queue)
        self.unsynced = []
        self.refused = []
        self.end_content()
