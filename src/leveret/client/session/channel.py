"""One channel in the client role, sans-IO: requests and publishes out, replies and content in.

A channel writes into the connection's `ClientOutput` and appends to the caller's list of events.
It uses neither sockets nor clocks.  Requests may be pipelined, because replies arrive in the order
of the requests.

Invariants: content frames are accepted only right after the method that announces them (505
otherwise); a closing channel drops everything except channel.close and close-ok (behaviour 15:
frames for a closing channel are dropped); every token is resolved exactly once; the channel's end
is reported exactly once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.client.acks import Acks
from leveret.client.errors import Closed, ConnectionLost, DeliveryLost, TransactionLost
from leveret.client.events import (
    CameBack,
    Cancelled,
    ChannelEnded,
    Delivered,
    FlowChanged,
    OwnedChannel,
    Replied,
    Settled,
)
from leveret.client.message import ReturnedMessage, delivered, got
from leveret.client.names import checked
from leveret.client.session.confirms import PublisherConfirms
from leveret.client.session.kept import KeptPublish
from leveret.client.session.memory import GENERATION_SHIFT, ChannelMemory
from leveret.client.session.output import BASIC, ClientOutput, publish_frame, reply_text
from leveret.client.session.states import CHANNEL, ChannelState
from leveret.client.session.tally import Tally
from leveret.client.session.topology import changed
from leveret.errors import (
    CommandInvalid,
    ContentTooLarge,
    SoftError,
    UnexpectedFrame,
    error_for,
)
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX, CLIENT_MESSAGE_OVERHEAD_BYTES
from leveret.wire.content.publish_marks import channel_key, read_marks
from leveret.wire.frames import CONTENT_HEAD_BYTES, header_body_size, header_class_id
from leveret.wire.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicRecover,
    BasicReject,
    BasicReturn,
)
from leveret.wire.methods.channel import (
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
)
from leveret.wire.methods.confirm import ConfirmSelect
from leveret.wire.methods.tx import TxSelect
from leveret.wire.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from leveret.client.events import ChannelOwner, Event, Token
    from leveret.client.numbering import Numbering
    from leveret.client.session.intake import Intake
    from leveret.client.session.kept import ChannelPublishes, SentPiece
    from leveret.wire.frames import FrameReader
    from leveret.wire.method import Method


class ChannelSession(OwnedChannel):
    """A channel's state; `owner` is the shell's channel, by which messages are acked.

    With a `memory`, the channel continues on another connection after the loss of its own.
    """

    __slots__ = (
        "_accepts",
        "_acks_plainly",
        "_awaiting_header",
        "_content",
        "_frame",
        "_numbering",
        "_output",
        "_pending",
        "_pieces",
        "_publish",
        "_publishes_plainly",
        "_raw_properties",
        "_remaining",
        "_reported",
        "_sends_publishes",
        "_tag_base",
        "acks",
        "confirms",
        "error",
        "key",
        "memory",
        "state",
    )

    def __init__(
        self,
        number: int,
        output: ClientOutput,
        owner: ChannelOwner,
        token: Token,
        memory: ChannelMemory | None = None,
        tells_key: bool = False,
    ) -> None:
        super().__init__(number, owner)
        self.memory = memory
        #: The key by which the broker recognises the channel on a later connection; 0 if unused.
        self.key = 0
        request = ChannelOpen()
        if memory is not None and tells_key:
            self.key = memory.connection.last_key = memory.connection.last_key + 1
            request = ChannelOpen(channel_key(self.key, memory.counted_key))
        self.confirms: PublisherConfirms | None = None if memory is None else memory.confirms
        #: The offset added to the broker's delivery tags.
        self._tag_base = 0
        if memory is not None:
            memory.session = self
            self._tag_base = memory.connection.generation << GENERATION_SHIFT
        self.acks = Acks(number, self._tag_base)
        self.error: Exception | None = None
        self._output = output
        self._pending: deque[tuple[Method, Token]] = deque()
        self._content: Method | None = None
        self._raw_properties = NO_PROPERTIES
        self._awaiting_header = False
        self._remaining = 0
        self._pieces: list[bytes] = []
        self._publish = BasicPublish()
        self._reported = False
        self._sends_publishes = False
        self._publishes_plainly = False
        self._acks_plainly = False
        #: The encoded frame of `_publish`, with the original name of its queue.
        self._frame = publish_frame(number, self._publish)
        #: Numbers the publishes, for a broker with publisher deduplication.
        self._numbering: Numbering | None = None
        self.state = ChannelState.OPENING
        self._accepts = CHANNEL[self.state]
        output.send(number, request)
        self._pending.append((request, token))

    @property
    def awaits_reply(self) -> bool:
        """Whether any request or publish is still unanswered or unconfirmed."""
        if self._pending or self.state is ChannelState.CLOSING:
            return True
        return self.confirms is not None and self.confirms.unconfirmed > 0

    # -- requests of the application ---------------------------------------------------------------

    def request(self, method: Method, token: Token) -> None:
        """Send a method that expects a reply; the `Replied` event will contain `token`.

        Raises: the channel's error when it is closed; ValueError for an invalid argument.
        """
        self.check_open()
        if _unsettles(method):
            self.acks.gather(False)
        memory = self.memory
        if memory is None:
            self._output.send(self.number, method)
        else:
            self._check_request(memory, method)
            method = memory.named(method)
            self._output.send(self.number, memory.connection.topology.translated(method))
        self._pending.append((method, token))
        if self.confirms is None and isinstance(method, ConfirmSelect):
            self._confirm(memory)

    def _check_request(self, memory: ChannelMemory, method: Method) -> None:
        """Refuse, once, to commit a lost transaction.  Raises: TransactionLost."""
        try:
            memory.check_request(method)
        finally:
            self._look_again()

    def _confirm(self, memory: ChannelMemory | None) -> None:
        """Start counting publishes."""
        if memory is None:
            self.confirms = PublisherConfirms()
        else:
            self.confirms = memory.confirms = PublisherConfirms()
            memory.counted_key = self.key
            self._look_again()

    def publish(
        self,
        body: bytes,
        exchange: str,
        routing_key: str,
        properties: bytes = NO_PROPERTIES,
        mandatory: bool = False,
        token: Token | None = None,
    ) -> int:
        """Send a message; return its sequence in confirm mode, else 0.

        Raises: the channel's error when it is closed; ValueError for an invalid argument.
        """
        if not self._sends_publishes:
            self._check_publish()
        method = self._publish
        # Most publishers repeat the same address, so reuse the last method.
        if (
            method.routing_key != routing_key
            or method.exchange != exchange
            or method.mandatory != mandatory
        ):
            self._address(exchange, routing_key, mandatory)
        if self._publishes_plainly:
            self._output.publish(self.number, self._frame, properties, body, self._numbering)
        elif self._sends_publishes:
            frame = publish_frame(self.number, self._prepare(self._publish))
            self._output.publish(self.number, frame, properties, body, self._numbering)
        else:
            return self._publish_later(properties, body, token)
        confirms = self.confirms
        if confirms is None:
            return 0
        if token is None and not mandatory:
            sequence = confirms.last = confirms.last + 1
            return sequence
        return confirms.published(token, (exchange, routing_key, body) if mandatory else None)

    def _address(self, exchange: str, routing_key: str, mandatory: bool) -> None:
        """Change the destination of publishes.  Raises: ValueError; TypeError."""
        method = BasicPublish(
            exchange=checked("exchange", exchange),
            routing_key=checked("routing_key", routing_key),
            mandatory=mandatory,
        )
        self._frame = publish_frame(self.number, method)
        self._publish = method

    def _publish_later(self, properties: bytes, body: bytes, token: Token | None) -> int:
        """Store a publish until the lost connection is recovered; return its sequence."""
        assert self.memory is not None
        assert self.confirms is not None
        method = self._publish
        data = self._encoded(KeptPublish(method, properties, body), self._numbering)
        identity = (method.exchange, method.routing_key, body) if method.mandatory else None
        sequence = self.confirms.published(token, identity)
        self.confirms.keep_one(self.memory.connection.kept, data, self.number, sequence)
        return sequence

    def _encoded(self, publish: KeptPublish, numbering: Numbering | None = None) -> bytes:
        """Return the frames of a publish.  Raises: ValueError for an invalid argument."""
        output = ClientOutput()
        output.frame_max = self._output.frame_max
        frame = publish_frame(self.number, publish.method)
        output.publish(self.number, frame, publish.properties, publish.body, numbering)
        return output.take()

    def _prepare(self, method: BasicPublish) -> BasicPublish:
        """Record a publish in a transaction; return the method with the queue's current name."""
        memory = self.memory
        if memory is None:
            return method
        memory.is_begun = memory.is_transactional
        topology = memory.connection.topology
        if not topology.has_renamed or method.exchange:
            return method
        now = topology.current(method.routing_key)
        return method if now == method.routing_key else changed(method, routing_key=now)

    def _check_publish(self) -> None:
        """Check that the channel is open, or that publishes can be stored during recovery.

        Raises: the channel's error when it is closed; TransactionLost; ConnectionLost outside
        confirm mode, because such publishes are not sent again.
        """
        memory = self.memory
        if memory is not None and memory.is_transaction_lost:
            raise TransactionLost
        if not self._is_being_restored():
            self.check_open()
        elif self.confirms is None:
            raise ConnectionLost("the connection is lost and not recovered yet; nothing was sent")

    @property
    def keeps_publishes(self) -> bool:
        """Whether publishes since the last call of `keep` must be stored for recovery."""
        confirms = self.confirms
        if self.memory is None or confirms is None or isinstance(confirms, Tally):
            return False
        return confirms.is_keeping

    def keep(self, piece: SentPiece) -> None:
        """Store the publishes since the last call, which `piece` contains."""
        if self.confirms is not None:
            self.confirms.keep(piece, self.number)

    def tally(self) -> Tally:
        """Only count confirms from now on, for `publish_encoded`.

        Raises: ValueError outside confirm mode, or after a publish.
        """
        if self.confirms is None or self.confirms.last > 0:
            raise ValueError("tally() needs confirm mode and must precede the first publish")
        self.confirms = tally = Tally()
        return tally

    def publish_encoded(self, frames: bytes, count: int) -> None:
        """Send `frames`, which contain `count` whole publishes for this channel; needs `tally`.

        Raises: the channel's error when it is closed.
        """
        self.check_open()
        assert isinstance(self.confirms, Tally)
        self._output.publish_encoded(frames)
        self.confirms.published_many(count)

    def ack(self, delivery_tag: int, multiple: bool) -> None:
        """Ack deliveries; acks in order are combined, and written before any later frame.

        Raises: DeliveryLost; the channel's error when it is closed.
        """
        acks = self.acks
        if not multiple and acks.takes(delivery_tag):
            self._output.gather(acks)
            return
        number = delivery_tag
        if not self._acks_plainly:
            number = self._check_ack(delivery_tag, multiple)
        acks.settle(delivery_tag, multiple)
        self._output.send(self.number, BasicAck(delivery_tag=number, multiple=multiple))

    def nack(self, delivery_tag: int, multiple: bool, requeue: bool) -> None:
        """Nack deliveries.  Raises: as `ack`."""
        number = delivery_tag
        if not self._acks_plainly:
            number = self._check_ack(delivery_tag, multiple)
        self.acks.settle(delivery_tag, multiple)
        nack = BasicNack(delivery_tag=number, multiple=multiple, requeue=requeue)
        self._output.send(self.number, nack)

    def reject(self, delivery_tag: int, requeue: bool) -> None:
        """Reject a delivery.  Raises: as `ack`."""
        number = delivery_tag
        if not self._acks_plainly:
            number = self._check_ack(delivery_tag, False)
        self.acks.settle(delivery_tag, False)
        self._output.send(self.number, BasicReject(delivery_tag=number, requeue=requeue))

    def _check_ack(self, delivery_tag: int, multiple: bool) -> int:
        """Return the broker's tag for a delivery tag.  Raises: as `ack`."""
        memory = self.memory
        if memory is None:
            self.check_open()
            return delivery_tag
        if memory.connection.is_recovering and self.state is ChannelState.CLOSED:
            raise DeliveryLost(delivery_tag)
        self.check_open()
        number = memory.check_tag(delivery_tag, multiple)
        memory.is_begun = memory.is_transactional
        return number

    def close(self, code: int = 200, text: str = "") -> list[ChannelEnded]:
        """Begin to close the channel, unless it has ended; `ChannelEnded` reports the end.

        If the connection is lost, there is no broker to wait for, and the event is returned here.
        """
        if self.state in {ChannelState.OPEN, ChannelState.OPENING}:
            if self.memory is not None and self.memory.connection.is_recovering:
                self.memory.ended()  # its modes and consumers must not be restored
            self._send_close(code, text)
        elif self.state is ChannelState.CLOSED and not self._reported and self.memory is not None:
            self.memory.ended()
            events: list[Event] = []
            self.end(None, events)
            return [event for event in events if isinstance(event, ChannelEnded)]
        return []

    def discard(self) -> None:
        """Drop further input, because the channel or the connection is closing."""
        self._content = None
        self._pieces.clear()
        self._enter(ChannelState.CLOSING)

    def check_open(self) -> None:
        """Raise the channel's error unless it is open."""
        if self.state is not ChannelState.OPEN:
            if self.error is not None:
                raise self.error.with_traceback(None)
            raise Closed(f"channel {self.number} {self.state.value}")

    # -- input from the broker ---------------------------------------------------------------------

    def on_method(self, method: Method, events: list[Event]) -> None:
        """Handle a method.  Raises: HardError for the connection, SoftError for this channel."""
        if self._content is not None:
            raise UnexpectedFrame(f"{method.NAME} before the content of {self._content.NAME}")
        kind = type(method)
        state = self._accepts.get(kind)
        if state is None:
            if self.state is not ChannelState.CLOSING:
                self._on_reply(method, events)
        elif kind.HAS_CONTENT:
            self._content = method
            self._awaiting_header = True
        elif isinstance(method, (BasicAck, BasicNack)):
            self._on_settled(method, events)
        else:
            self._on_other(method, state, events)

    def _on_reply(self, method: Method, events: list[Event]) -> None:
        """Match a reply with the oldest request."""
        if not self._pending or method.NAME not in self._pending[0][0].REPLIES:
            raise CommandInvalid(f"unexpected {method.NAME} on channel {self.number}")
        if method.HAS_CONTENT:
            self._content = method
            self._awaiting_header = True
            return
        request, token = self._pending.popleft()
        if self.memory is not None and not token.is_internal:
            self.memory.answered(request, method)
            self._look_again()
        events.append(Replied(token, method))

    def _on_settled(self, method: BasicAck | BasicNack, events: list[Event]) -> None:
        """Settle publishes."""
        if self.confirms is None:
            raise CommandInvalid(
                f"{method.NAME} arrived outside confirm mode on channel {self.number}"
            )
        acked = isinstance(method, BasicAck)
        outcomes = self.confirms.settle(method.delivery_tag, method.multiple, acked)
        events.append(Settled(self, tuple(outcomes)))

    def _on_other(self, method: Method, state: ChannelState, events: list[Event]) -> None:
        """Handle channel.open-ok, flow, close and close-ok, and basic.cancel."""
        if isinstance(method, ChannelClose):
            self._output.send(self.number, ChannelCloseOk())
            if state is ChannelState.CLOSED:
                code, text = method.reply_code, method.reply_text
                error = error_for(code, text, True, method.class_id, method.method_id)
                self.end(error, events)
        elif isinstance(method, ChannelCloseOk):
            self.end(None, events)
        elif isinstance(method, ChannelFlow):
            self._output.send(self.number, ChannelFlowOk(active=method.active))
            events.append(FlowChanged(self, method.active))
        elif isinstance(method, BasicCancel):
            events.append(Cancelled(self, method.consumer_tag))
        else:  # channel.open-ok
            self._enter(state)
            if isinstance(method, ChannelOpenOk) and method.marks:
                self._take_marks(method.marks, events)
            events.append(Replied(self._pending.popleft()[1], method))

    def _take_marks(self, data: bytes, events: list[Event]) -> None:
        """Settle publishes of the lost connection by the broker's report on them."""
        marks = read_marks(data)
        memory, confirms = self.memory, self.confirms
        if marks is None or confirms is None or memory is None or memory.counted_key == 0:
            return
        events.append(Settled(self, tuple(confirms.settle_marks(marks))))

    def count_again(self) -> list[ChannelPublishes]:
        """Restart the delivery tags for this connection; return the unconfirmed publishes."""
        assert self.memory is not None
        assert self.confirms is not None
        self.memory.counted_key = self.key
        return self.confirms.send_again()

    def take_deliveries(self, intake: Intake, reader: FrameReader, events: list[Event]) -> bool:
        """Read whole deliveries of one consumer; return False if none can be read."""
        if self.state is not ChannelState.OPEN or self._content is not None:
            return False
        messages = intake.take(reader, self.owner, self.acks, self._tag_base)
        if not messages:
            return False
        events.append(Delivered(self.owner, messages[0].consumer_tag, messages, intake.size))
        return True

    def on_header(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        """Handle a content header.  Raises: as `on_method`."""
        if self._content is None or not self._awaiting_header:
            if self.state is ChannelState.CLOSING:
                return
            raise UnexpectedFrame(f"a content header without a method on channel {self.number}")
        if header_class_id(data, start, end) != BASIC:
            raise UnexpectedFrame("the class of the content header differs from its method's")
        size = header_body_size(data, start, end)
        if size > CLIENT_MESSAGE_BYTES_MAX:
            raise ContentTooLarge(f"a body of {size} bytes; {CLIENT_MESSAGE_BYTES_MAX} are allowed")
        self._raw_properties = data[start + CONTENT_HEAD_BYTES : end]
        self._awaiting_header = False
        self._remaining = size
        if size == 0:
            self._complete(b"", events)

    def on_body(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        """Handle a body frame.  Raises: as `on_method`."""
        size = end - start
        left = self._remaining - size
        if self._content is None or self._awaiting_header or left < 0:
            if self.state is ChannelState.CLOSING:
                return
            raise UnexpectedFrame(f"more body than announced on channel {self.number}")
        if left == 0 and not self._pieces:
            self._complete(data[start:end], events)
            return
        self._pieces.append(data[start:end])
        self._remaining = left
        if left == 0:
            body = b"".join(self._pieces)
            self._pieces.clear()
            self._complete(body, events)

    def _complete(self, body: bytes, events: list[Event]) -> None:
        """Report a message with its complete body."""
        method = self._content
        self._content = None
        if isinstance(method, BasicDeliver):
            method.delivery_tag += self._tag_base
            self.acks.newest = method.delivery_tag
            message = delivered(self.owner, method, self._raw_properties, body, self.acks)
            size = len(body) + CLIENT_MESSAGE_OVERHEAD_BYTES
            events.append(Delivered(self.owner, message.consumer_tag, [message], size))
        elif isinstance(method, BasicGetOk):
            method.delivery_tag += self._tag_base
            self.acks.newest = method.delivery_tag
            message = got(self.owner, method, self._raw_properties, body, self.acks)
            request, token = self._pending.popleft()
            if self.memory is not None:
                self.memory.answered(request, method)
            events.append(Replied(token, method, message))
        elif isinstance(method, BasicReturn):
            returned = ReturnedMessage(method, self._raw_properties, body)
            if self.confirms is None or not self.confirms.returned(returned):
                events.append(CameBack(self, returned))

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, error: SoftError, events: list[Event]) -> None:
        """Close the channel because of an error in the broker's input; report the end at once."""
        self._send_close(error.code, error.reply_text)
        self._report(error, events)

    def end(self, error: Exception | None, events: list[Event]) -> None:
        """End the channel after its close or the end of the connection."""
        self._enter(ChannelState.CLOSED)
        self._report(error, events)

    @property
    def recovers(self) -> bool:
        """Whether the channel continues after the loss of its connection.

        It does not if it has no memory, is closing, or only counts its confirms.
        """
        if self.memory is None or self._reported or self.state is ChannelState.CLOSING:
            return False
        return not isinstance(self.confirms, Tally)

    def suspend(self, error: Exception) -> None:
        """Handle the loss of the connection, and wait for the next connection."""
        assert self.memory is not None
        self.error = error
        self._content = None
        self._pieces.clear()
        self._enter(ChannelState.CLOSED)
        waiting = [pair for pair in self._pending if not pair[1].is_internal]
        internal = [token for _, token in self._pending if token.is_internal]
        self._pending.clear()
        self.memory.lost(waiting)
        for token in internal:
            token.end(error)

    def send_again(self, sequence: int, publish: KeptPublish) -> None:
        """Publish a message again unless it is settled.  Raises: ValueError if it is too large."""
        assert self.memory is not None
        assert self.confirms is not None
        if self.confirms.is_settled(sequence):
            return
        data = self._encoded(publish._replace(method=self._prepare(publish.method)))
        self.confirms.keep_one(self.memory.connection.kept, data, self.number, sequence)
        self._output.publish_encoded(data)

    def _send_close(self, code: int, text: str) -> None:
        """Send channel.close and drop input until the answer."""
        self._output.send(self.number, ChannelClose(reply_code=code, reply_text=reply_text(text)))
        self.discard()

    def _report(self, error: Exception | None, events: list[Event]) -> None:
        """Report the channel's end once, with all unresolved tokens."""
        if self._reported:
            return
        self._reported = True
        self.error = error
        self._content = None
        self._pieces.clear()
        tokens = [token for _, token in self._pending]
        self._pending.clear()
        if self._is_being_restored():
            events.append(ChannelEnded(self, error, tuple(tokens)))
            return
        if self.memory is not None:
            self.memory.ended()
            tokens += [token for _, token in self.memory.unanswered]
            self.memory.unanswered.clear()
        if self.confirms is not None:
            tokens += self.confirms.abandon()
        events.append(ChannelEnded(self, error, tuple(tokens)))

    def _is_being_restored(self) -> bool:
        """Return whether the application's channel continues although this session has ended."""
        memory = self.memory
        if memory is None or not memory.connection.is_recovering:
            return False
        return memory in memory.connection.channels

    def _enter(self, state: ChannelState) -> None:
        """Change the state and the table of accepted methods."""
        self.state = state
        self._accepts = CHANNEL[state]
        if state is not ChannelState.OPEN:
            self._output.forget(self.acks)
        self.acks.gather(state is ChannelState.OPEN)
        self._look_again()

    def _look_again(self) -> None:
        """Recompute the flags that let publishes and acks skip their checks."""
        memory = self.memory
        is_open = self.state is ChannelState.OPEN
        self._sends_publishes = self._publishes_plainly = self._acks_plainly = is_open
        if memory is None:
            return
        connection = memory.connection
        numbers = self.confirms is not None and connection.is_numbering
        self._numbering = connection.numbering if numbers else None
        if connection.is_recovering or memory.is_transaction_lost:
            self._sends_publishes = False
        if not self._sends_publishes or memory.is_transactional or connection.topology.has_renamed:
            self._publishes_plainly = False
        if memory.connection.generation or memory.is_transactional:
            self._acks_plainly = False

    def recovered(self) -> None:
        """Allow publishes again after recovery."""
        self._look_again()


def _unsettles(method: Method) -> bool:
    """Return whether a method stops the combining of acks, because unacked tags become unknown.

    `no_ack` deliveries use tags too, basic.recover assigns new tags, and a rollback undoes acks.
    """
    if isinstance(method, (BasicConsume, BasicGet)):
        return method.no_ack
    return isinstance(method, (BasicRecover, TxSelect))
