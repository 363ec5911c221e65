"""What outlives a lost connection: its topology, and what each channel is to be given again.

A `ChannelMemory` is one channel of the application over all connections that it has had; a
`ChannelSession` is its life on one of them, and keeps its memory up to date.

Not here: the order in which things are done again (`recovery/restoration`).

Invariants: a request is remembered when the broker has answered it, and not before; requests that
waited when the connection was lost are in `unanswered`, in their order, each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from leveret.client.errors import DeliveryLost, TransactionLost
from leveret.client.session.kept import Kept
from leveret.client.session.numbering import Numbering
from leveret.client.session.topology import Topology, changed
from leveret.wire.methods.basic import BasicCancel, BasicConsume, BasicConsumeOk, BasicGet, BasicQos
from leveret.wire.methods.confirm import ConfirmSelect
from leveret.wire.methods.queue import QueueDeclare, QueueDeclareOk, QueueDelete
from leveret.wire.methods.tx import TxCommit, TxRollback, TxSelect

if TYPE_CHECKING:
    from leveret.client.events import OwnedChannel, Owner, Token
    from leveret.client.session.confirms import Confirms
    from leveret.wire.method import Method

M = TypeVar("M", bound="Method")

#: A delivery tag holds the generation of its connection above the broker's number, so that tags of
#: a lost connection are known.  The first generation is 0: its tags are the broker's.
GENERATION_SHIFT: Final = 40


class ConnectionMemory:
    """What one connection of the application has over all connections to a broker."""

    def __init__(self, publisher: str, publish_session: str = "") -> None:
        #: The name by which a Leveret broker knows how far its publishes came; see
        #: `leveret.wire.content.publish_marks`.
        self.publish_session = publish_session
        #: The newest key of a channel.
        self.last_key = 0
        self.topology = Topology()
        #: The channels that have not ended, in the order in which they were opened.
        self.channels: dict[ChannelMemory, None] = {}
        self.numbering = Numbering(publisher)
        #: Whether publishes are numbered: the broker drops repeats by it.
        self.is_numbering = False
        #: How many connections came before this one.
        self.generation = 0
        #: Whether the channels wait for another connection, or for what is done again on it.
        self.is_recovering = False
        #: The publishes that are not confirmed.
        self.kept = Kept()


class RememberedConsumer:
    """A consumer that runs: how it was started, and the prefetch limit that held then."""

    __slots__ = ("is_waiting", "method", "qos")

    def __init__(self, method: BasicConsume, qos: BasicQos | None) -> None:
        self.method = method
        self.qos = qos
        #: Whether the broker has cancelled it, so that it waits for its queue.
        self.is_waiting = False


class ChannelMemory:
    """One channel of the application; `owner` is the shell's channel."""

    def __init__(self, connection: ConnectionMemory, owner: Owner) -> None:
        self.connection = connection
        self.owner = owner
        #: The channel on the last connection.
        self.session: OwnedChannel | None = None
        self.confirms: Confirms | None = None
        #: The key of the channel on which the broker's numbers are those that `confirms` counts by.
        self.counted_key = 0
        self.unanswered: list[tuple[Method, Token]] = []
        self.consumers: dict[str, RememberedConsumer] = {}
        #: Whether tx.select, and whether anything was done in the transaction of now.
        self.is_transactional = False
        self.is_begun = False
        #: Whether the transaction went with a lost connection and nobody was told yet.
        self.is_transaction_lost = False
        self._is_confirming = False
        self._qos: BasicQos | None = None
        self._channel_qos: BasicQos | None = None
        self._last_queue = ""
        #: Whether the broker ever gave it messages that are to be acked.
        self._takes_deliveries = False
        self._are_deliveries_lost = False
        connection.channels[self] = None

    # -- what is asked and answered ----------------------------------------------------------------

    def named(self, method: M) -> M:
        """Return a method with the name by which its queue is remembered.

        An empty one means the last declared queue; a later name of a queue means its first one.
        """
        if isinstance(method, QueueDeclare):
            return method
        queue = getattr(method, "queue", None)
        if queue != "":
            known = queue if queue is None else self.connection.topology.known(queue)
            return method if known == queue else changed(method, queue=known)
        return changed(method, queue=self._last_queue) if self._last_queue else method

    def check_request(self, method: Method) -> None:
        """Refuse what belongs to a transaction that is lost.  Raises: TransactionLost."""
        if self.is_transaction_lost and isinstance(method, TxCommit):
            self.is_transaction_lost = False
            raise TransactionLost

    def answered(self, request: Method, reply: Method) -> None:
        """Remember what a request has changed."""
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
        """Forget a consumer that has ended, and its queue if the broker deletes that with it."""
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
        """Take the end of the connection; `waiting` are the requests without an answer."""
        self.unanswered = waiting + self.unanswered
        committing = any(isinstance(method, TxCommit) for method, _ in self.unanswered)
        if self.is_begun and not committing:
            self.is_transaction_lost = True
        self.is_begun = False
        self._are_deliveries_lost = self._takes_deliveries

    def take_unanswered(self) -> list[tuple[Method, Token]]:
        """Return the requests to send again, and forget them.

        A commit is not sent again: nobody knows whether the broker did it.
        """
        taken, self.unanswered = self.unanswered, []
        for method, token in taken:
            if isinstance(method, TxCommit):
                token.end(TransactionLost())
        return [pair for pair in taken if not isinstance(pair[0], TxCommit)]

    def check_tag(self, delivery_tag: int, multiple: bool) -> int:
        """Return the broker's number of a delivery tag.

        Raises: DeliveryLost for a tag of a lost connection, and once after each loss for all tags
        at once, as some of them may be.
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
        """Return the methods that give a new channel its modes, and then its consumers.

        Each consumer is started under the prefetch limit that held when it was started first.
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
        """Forget the channel: it has ended for the application, and its consumers with it."""
        self.connection.channels.pop(self, None)
        for consumer_tag in list(self.consumers):
            self.forget_consumer(consumer_tag)
