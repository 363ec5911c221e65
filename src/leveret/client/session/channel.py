"""One channel in the client role, sans-IO: requests and publishes out, replies and content in.

It writes into the connection's `Output` and appends to the caller's list of events; it knows no
socket and no time.  Requests may be pipelined: replies come in the order of the requests.

Invariants: content frames are assembled only right after the method that announces them (505
otherwise); a closing channel drops everything but the two closes (behaviour 15); a token comes back
exactly once; the channel's end is reported exactly once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.client.errors import Closed
from leveret.client.events import (
    CameBack,
    Cancelled,
    ChannelEnded,
    FlowChanged,
    OwnedChannel,
    Replied,
    Settled,
)
from leveret.client.message import Message, ReturnedMessage
from leveret.client.names import checked
from leveret.client.session.confirms import Confirms
from leveret.client.session.output import BASIC, Output, reply_text
from leveret.client.session.states import CHANNEL, ChannelState
from leveret.client.session.tally import Tally
from leveret.errors import (
    CommandInvalid,
    ContentTooLarge,
    SoftError,
    UnexpectedFrame,
    error_for,
)
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX
from leveret.wire.frames import CONTENT_HEAD_BYTES, header_body_size, header_class_id
from leveret.wire.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReject,
    BasicReturn,
)
from leveret.wire.methods.channel import (
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
)
from leveret.wire.methods.confirm import ConfirmSelect
from leveret.wire.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from leveret.client.events import Event, Owner, Token
    from leveret.wire.method import Method


class ChannelSession(OwnedChannel):
    """A channel's state; `owner` is the shell's channel, which messages ack by."""

    __slots__ = (
        "_accepts",
        "_awaiting_header",
        "_content",
        "_output",
        "_pending",
        "_pieces",
        "_publish",
        "_raw_properties",
        "_remaining",
        "_reported",
        "confirms",
        "error",
        "state",
    )

    def __init__(self, number: int, output: Output, owner: Owner, token: Token) -> None:
        super().__init__(number, owner)
        self.confirms: Confirms | None = None
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
        self._enter(ChannelState.OPENING)
        request = ChannelOpen()
        output.send(number, request)
        self._pending.append((request, token))

    @property
    def awaits_reply(self) -> bool:
        """Whether anything is asked of the broker that it has not answered or confirmed."""
        if self._pending or self.state is ChannelState.CLOSING:
            return True
        return self.confirms is not None and self.confirms.unconfirmed > 0

    # -- what the application asks for -------------------------------------------------------------

    def request(self, method: Method, token: Token) -> None:
        """Send a method that is answered; its `Replied` carries `token`.

        Raises: the channel's error when it has ended; ValueError when it cannot be written.
        """
        self.check_open()
        self._output.send(self.number, method)
        self._pending.append((method, token))
        if self.confirms is None and isinstance(method, ConfirmSelect):
            self.confirms = Confirms()

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

        Raises: the channel's error when it has ended; ValueError when it cannot be written.
        """
        if self.state is not ChannelState.OPEN:
            self.check_open()
        method = self._publish
        # Publishers mostly repeat themselves: the last method serves again.
        if (
            method.routing_key != routing_key
            or method.exchange != exchange
            or method.mandatory != mandatory
        ):
            method = BasicPublish(
                exchange=checked("exchange", exchange),
                routing_key=checked("routing_key", routing_key),
                mandatory=mandatory,
            )
        self._output.publish(self.number, method, properties, body)
        self._publish = method
        if self.confirms is None:
            return 0
        identity = (exchange, routing_key, body) if mandatory else None
        return self.confirms.published(token, identity)

    def tally(self) -> Tally:
        """Have confirms counted from the first publish on, for `publish_encoded`.

        Raises: ValueError outside confirm mode, or after a publish.
        """
        if self.confirms is None or self.confirms.last > 0:
            raise ValueError("confirms are counted from confirm.select on, before any publish")
        self.confirms = tally = Tally()
        return tally

    def publish_encoded(self, frames: bytes, count: int) -> None:
        """Send `count` messages that are whole publishes for this channel, after `tally`.

        Raises: the channel's error when it has ended.
        """
        self.check_open()
        assert isinstance(self.confirms, Tally)
        self._output.publish_encoded(frames)
        self.confirms.published_many(count)

    def ack(self, delivery_tag: int, multiple: bool) -> None:
        """Ack deliveries.  Raises: the channel's error when it has ended."""
        self.check_open()
        self._output.send(self.number, BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def nack(self, delivery_tag: int, multiple: bool, requeue: bool) -> None:
        """Refuse deliveries.  Raises: the channel's error when it has ended."""
        self.check_open()
        nack = BasicNack(delivery_tag=delivery_tag, multiple=multiple, requeue=requeue)
        self._output.send(self.number, nack)

    def reject(self, delivery_tag: int, requeue: bool) -> None:
        """Refuse a delivery.  Raises: the channel's error when it has ended."""
        self.check_open()
        self._output.send(self.number, BasicReject(delivery_tag=delivery_tag, requeue=requeue))

    def close(self, code: int = 200, text: str = "") -> None:
        """Begin to close; the end is reported by `ChannelEnded`.  No effect on an ended channel."""
        if self.state in {ChannelState.OPEN, ChannelState.OPENING}:
            self._send_close(code, text)

    def discard(self) -> None:
        """Take nothing more, as the connection is closing."""
        self._content = None
        self._pieces.clear()
        self._enter(ChannelState.CLOSING)

    def check_open(self) -> None:
        """Raise what ended the channel unless it is open."""
        if self.state is not ChannelState.OPEN:
            if self.error is not None:
                raise self.error.with_traceback(None)
            raise Closed(f"channel {self.number} {self.state.value}")

    # -- what the broker sends ---------------------------------------------------------------------

    def on_method(self, method: Method, events: list[Event]) -> None:
        """Take a method.  Raises: HardError for the connection, SoftError for this channel."""
        if self._content is not None:
            raise UnexpectedFrame(f"{method.NAME} came before the content of {self._content.NAME}")
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
            raise CommandInvalid(f"{method.NAME} was not asked for on channel {self.number}")
        if method.HAS_CONTENT:
            self._content = method
            self._awaiting_header = True
            return
        events.append(Replied(self._pending.popleft()[1], method))

    def _on_settled(self, method: BasicAck | BasicNack, events: list[Event]) -> None:
        """Settle publishes."""
        if self.confirms is None:
            raise CommandInvalid(
                f"{method.NAME} came without confirm mode on channel {self.number}"
            )
        acked = isinstance(method, BasicAck)
        outcomes = self.confirms.settle(method.delivery_tag, method.multiple, acked)
        events.append(Settled(self, tuple(outcomes)))

    def _on_other(self, method: Method, state: ChannelState, events: list[Event]) -> None:
        """Take what changes the state of the channel, a consumer or the flow."""
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
            events.append(Replied(self._pending.popleft()[1], method))

    def on_header(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        """Take a content header.  Raises: as `on_method`."""
        if self._content is None or not self._awaiting_header:
            if self.state is ChannelState.CLOSING:
                return
            raise UnexpectedFrame(f"a content header without its method on channel {self.number}")
        if header_class_id(data, start, end) != BASIC:
            raise UnexpectedFrame("the content header is of another class than its method")
        size = header_body_size(data, start, end)
        if size > CLIENT_MESSAGE_BYTES_MAX:
            raise ContentTooLarge(f"a body of {size} bytes; {CLIENT_MESSAGE_BYTES_MAX} are taken")
        self._raw_properties = data[start + CONTENT_HEAD_BYTES : end]
        self._awaiting_header = False
        self._remaining = size
        if size == 0:
            self._complete(b"", events)

    def on_body(self, data: bytes, start: int, end: int, events: list[Event]) -> None:
        """Take a piece of a body.  Raises: as `on_method`."""
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
        """Report the content that is whole."""
        method = self._content
        self._content = None
        if isinstance(method, BasicDeliver):
            events.append(Message(self.owner, method, self._raw_properties, body))
        elif isinstance(method, BasicGetOk):
            message = Message(self.owner, method, self._raw_properties, body)
            events.append(Replied(self._pending.popleft()[1], method, message))
        elif isinstance(method, BasicReturn):
            returned = ReturnedMessage(method, self._raw_properties, body)
            if self.confirms is None or not self.confirms.returned(returned):
                events.append(CameBack(self, returned))

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, error: SoftError, events: list[Event]) -> None:
        """Close because of what the broker sent; the end is reported at once."""
        self._send_close(error.code, error.reply_text)
        self._report(error, events)

    def end(self, error: Exception | None, events: list[Event]) -> None:
        """Take the channel as ended, by its close or the connection's end."""
        self._enter(ChannelState.CLOSED)
        self._report(error, events)

    def _send_close(self, code: int, text: str) -> None:
        """Send channel.close and wait for its answer."""
        self._output.send(self.number, ChannelClose(reply_code=code, reply_text=reply_text(text)))
        self.discard()

    def _report(self, error: Exception | None, events: list[Event]) -> None:
        """Report the end, once, with every token that still waits."""
        if self._reported:
            return
        self._reported = True
        self.error = error
        self._content = None
        self._pieces.clear()
        tokens = [token for _, token in self._pending]
        self._pending.clear()
        if self.confirms is not None:
            tokens += self.confirms.abandon()
        events.append(ChannelEnded(self, error, tuple(tokens)))

    def _enter(self, state: ChannelState) -> None:
        """Change the state and with it the table of what may come."""
        self.state = state
        self._accepts = CHANNEL[state]
