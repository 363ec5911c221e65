"""The state that outlives a lost connection: its topology, and the modes of each channel.

A `ChannelMemory` is one channel of the application across all reconnects.  A `ChannelSession` is
the channel on one connection and updates the memory.  `recovery/restoration` defines the order of
restoration.

Invariants: a request is recorded only after the broker has answered it; requests that were pending
at the loss of the connection are in `unanswered`, in order and once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from leveret.client.errors import DeliveryLost, TransactionLost
from leveret.client.numbering import Numbering
from leveret.client.session.kept import KeptPublishes
from leveret.client.session.topology import DeclaredTopology, changed
from leveret.wire.methods.basic import BasicCancel, BasicConsume, BasicConsumeOk, BasicGet, BasicQos
from leveret.wire.methods.confirm import ConfirmSelect
from leveret.wire.methods.queue import QueueDeclare, QueueDeclareOk, QueueDelete
from leveret.wire.methods.tx import TxCommit, TxRollback, TxSelect

if TYPE_CHECKING:
    from leveret.client.events import ChannelOwner, OwnedChannel, Token
    from leveret.client.session.confirms import PublisherConfirms
    from leveret.wire.method import Method

M = TypeVar("M", bound="Method")

#: The upper bits of a delivery tag contain the generation of its connection, so that tags of a lost
#: connection are recognised.  The first generation is 0, so its tags equal the broker's.
GENERATION_SHIFT: Final = 40


class ConnectionMemory:
    """The state of one connection of the application, across all reconnects."""

    def __init__(self, publisher: str, publish_session: str = "") -> None:
        #: The name under which a Leveret broker records the connection's publishes; see
        #: `leveret.wire.content.publish_marks`.
        self.publish_session = publish_session
        #: The last channel key assigned.
        self.last_key = 0
        self.topology = DeclaredTopology()
        #: The channels that have not ended, in the order of opening.
        self.channels: dict[ChannelMemory, None] = {}
        self.numbering = Numbering(publisher)
        #: Whether publishes are numbered for publisher deduplication.
        self.is_numbering = False
        #: The number of earlier connections.
        self.generation = 0
        #: Whether the channels wait for the next connection or for their restoration.
        self.is_recovering = False
        #: The unconfirmed publishes.
        self.kept = KeptPublishes()


class RememberedConsumer:
    """A running consumer: its start method, and the prefetch limit in force at that time."""

    __slots__ = ("is_waiting", "method", "qos")

    def __init__(self, method: BasicConsume, qos: BasicQos | None) -> None:
        self.method = method
        self.qos = qos
        #: Whether the broker has cancelled the consumer, which waits for its queue.
        self.is_waiting = False


class ChannelMemory:
    """One channel of the application; `owner` is the shell's channel."""

    def __init__(self, connection: ConnectionMemory, owner: ChannelOwner) -> None:
        self.connection = connection
        self.owner = owner
        #: The channel on the last connection.
        self.session: OwnedChannel | None = None
        self.confirms: PublisherConfirms | None = None
        #: The key of the channel session whose delivery tags `confirms` uses.
        self.counted_key = 0
        self.unanswered: list[tuple[Method, Token]] = []
        self.consumers: dict[str, RememberedConsumer] = {}
        #: Whether tx.select was sent, and whether the current transaction contains anything.
        self.is_transactional = False
        self.is_begun = False
        #: Whether a transaction was lost with the connection and the loss is not reported yet.
        self.is_transaction_lost = False
        self._is_confirming = False
        self._qos: BasicQos | None = None
        self._channel_qos: BasicQos | None = None
        self._last_queue = ""
        #: Whether the channel has received messages that must be acked.
        self._takes_deliveries = False
        self._are_deliveries_lost = False
        connection.channels[self] = None

    # -- requests and replies ----------------------------------------------------------------------

    def named(self, method: M) -> M:
        """Return a method with the queue name used in this memory.

        An empty name means the last declared queue.  A later name of a queue is mapped to its first
        name.
        """
        if isinstance(method, QueueDeclare):
            return method
        queue = getattr(method, "queue", None)
        if queue != "":
            known = queue if queue is None else self.connection.topology.known(queue)
            return method if known == queue else changed(method, queue=known)
        return changed(method, queue=self._last_queue) if self._last_queue else method

    def check_request(self, method: Method) -> None:
        """Refuse a commit of a lost transaction.  Raises: TransactionLost."""
        if self.is_transaction_lost and isinstance(method, TxCommit):
            self.is_transaction_lost = False
            raise TransactionLost

    def answered(self, request: Method, reply: Method) -> None:
        """Record the effect of a request."""
        self.connection.topology.answered(request, reply)
        if isinstance(request, QueueDeclare) and isinstance(reply, QueueDeclareOk):
            self._last_queue = reply.queue
        elif isinstance(request, BasicConsume) and isinstance(reply, BasicConsumeOk):
            method = changed(request, consumer_tag=reply.consumer_tag)
            self.consumers[reply.consumer_tag] = RememberedConsumer(method, self._qos)
            self._takes_deliveries = self._takes_deliveries or not request.no_ack
        elif isinstance(request, BasicCancel):
            self.forget_consumer(request.consumer_tag)
        elif isinstance(request, BasicGet):
            self._takes_deliveries = self._takes_deliveries or not request.no_ack
        elif isinstance(request, BasicQos):
            if request.global_:
                self._channel_qos = request
            else:
                self._qos = request
        elif isinstance(request, QueueDelete):
            self._queue_deleted(request.queue)
        elif isinstance(request, ConfirmSelect):
            self._is_confirming = True
        elif isinstance(request, TxSelect):
            self.is_transactional = True
        elif isinstance(request, (TxCommit, TxRollback)):
            self.is_begun = self.is_transaction_lost = False

    def forget_consumer(self, consumer_tag: str) -> None:
        """Forget a consumer that has ended, and its queue if the broker deletes it as well."""
        consumer = self.consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        queue = consumer.method.queue
        channels = self.connection.channels
        if not any(c.method.queue == queue for m in channels for c in m.consumers.values()):
            self.connection.topology.last_consumer_gone(queue)

    def _queue_deleted(self, queue: str) -> None:
        """Forget the consumers of a queue that this client has deleted."""
        for memory in self.connection.channels:
            gone = [tag for tag, c in memory.consumers.items() if c.method.queue == queue]
            for tag in gone:
                del memory.consumers[tag]

    # -- losing and recovering ---------------------------------------------------------------------

    def lost(self, waiting: list[tuple[Method, Token]]) -> None:
        """Handle the loss of the connection; `waiting` contains the unanswered requests."""
        self.unanswered = waiting + self.unanswered
        committing = any(isinstance(method, TxCommit) for method, _ in self.unanswered)
        if self.is_begun and not committing:
            self.is_transaction_lost = True
        self.is_begun = False
        self._are_deliveries_lost = self._takes_deliveries

    def take_unanswered(self) -> list[tuple[Method, Token]]:
        """Return and clear the requests to send again.

        A commit is not sent again, because it is unknown whether the broker executed it.
        """
        taken, self.unanswered = self.unanswered, []
        for method, token in taken:
            if isinstance(method, TxCommit):
                token.end(TransactionLost())
        return [pair for pair in taken if not isinstance(pair[0], TxCommit)]

    def check_tag(self, delivery_tag: int, multiple: bool) -> int:
        """Return the broker's delivery tag.

        Raises: DeliveryLost for a tag of a lost connection; also, once after each loss, for "all
        tags", because some deliveries may be lost.
        """
        generation = delivery_tag >> GENERATION_SHIFT
        if delivery_tag == 0 and multiple:
            if self._are_deliveries_lost:
                self._are_deliveries_lost = False
                raise DeliveryLost(delivery_tag)
        elif generation != self.connection.generation or self.is_transaction_lost:
            raise DeliveryLost(delivery_tag)
        return delivery_tag - (generation << GENERATION_SHIFT)

    def modes(self) -> list[Method]:
        """Return the methods that restore the channel's modes and then its consumers.

        Each consumer is started with its original prefetch limit.
        """
        topology = self.connection.topology
        methods: list[Method] = []
        if self._is_confirming:
            methods.append(ConfirmSelect())
        if self.is_transactional:
            methods.append(TxSelect())
        if self._channel_qos is not None:
            methods.append(self._channel_qos)
        qos: BasicQos | None = None
        for consumer in self.consumers.values():
            if consumer.is_waiting:
                continue
            if consumer.qos is not None and consumer.qos is not qos:
                qos = consumer.qos
                methods.append(qos)
            methods.append(topology.translated(consumer.method))
        if self._qos is not None and self._qos is not qos:
            methods.append(self._qos)
        return methods

    def ended(self) -> None:
        """Forget the channel and its consumers, because it has ended for the application."""
        self.connection.channels.pop(self, None)
        for consumer_tag in list(self.consumers):
            self.forget_consumer(consumer_tag)
