"""Dispatches frames by the state of the connection and of the channel.

Publishes that are complete in the input bypass this module (`Publisher.take_whole`).

Source: AMQP 0-9-1 sections 2.2.4, 2.3.5 and 4.2; behaviours 9 to 15 (content order, opening and
closing of channels, update-secret).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import METHOD_BYTES_PER_COST, METHOD_VALUES_MAX
from leveret.broker.scheduler.task import WAIT
from leveret.errors import ChannelFault, SoftError, UnexpectedFrame
from leveret.limits import FRAME_OVERHEAD_BYTES
from leveret.session.channel.channel import ServerChannel
from leveret.session.channel.channels import Channels
from leveret.session.channel.content import NO_CONTENT
from leveret.session.channel.release import close_channel
from leveret.session.commands.dispatch import handle
from leveret.session.connection.closing import Closing
from leveret.session.connection.handshake import Handshake
from leveret.session.connection_base import ConnectionBase
from leveret.session.publish.publisher import Publisher
from leveret.session.states import CLOSING, HALT_WORK, OPEN
from leveret.wire.buffer import read_i32_be
from leveret.wire.content.publish_marks import encode_marks, read_channel_key
from leveret.wire.frames import FRAME_BODY, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from leveret.wire.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    decode_method,
)
from leveret.wire.methods.ids import BASIC_PUBLISH, CHANNEL_CLOSE, CHANNEL_CLOSE_OK

if TYPE_CHECKING:
    from leveret.broker.publishers.publish_sessions import ChannelProgress
    from leveret.wire.method import Method

#: Larger methods cost more than the fixed cost of a method (`broker/scheduler/costs.py`).
SHORT_METHOD_BYTES: Final = 64


#: The reply code of a normal close (AMQP 0-9-1, constants).
_REPLY_SUCCESS: Final = 200

#: The size of a channel.open-ok without its string: the method's ids and the length of the string.
_METHOD_BYTES: Final = 8


@final
class FrameInput:
    """Handles the frames of one connection; their payloads are in its reader's data."""

    def __init__(
        self,
        connection: ConnectionBase,
        channels: Channels,
        publisher: Publisher,
        handshake: Handshake,
        closing: Closing,
    ) -> None:
        self._connection = connection
        self._current = connection.current
        self._reader = connection.reader
        self._channels = channels
        self._publisher = publisher
        self._handshake = handshake
        self._closing = closing

    def take(self, kind: i64, number: i64, start: i64, end: i64) -> None:
        """Handle one frame.  Raises: AmqpError if it is not legal in the current state."""
        if kind == FRAME_HEARTBEAT:
            if number != 0:
                raise UnexpectedFrame("a heartbeat on a channel")
            return
        state = self._connection.state
        if state == CLOSING:
            if kind == FRAME_METHOD:
                self._closing.take_method(self._reader.data, start, end)
            return
        if number == 0:
            if kind != FRAME_METHOD:
                raise UnexpectedFrame("content on channel 0")
            self._connection_method(self._method_without_channel(start, end))
            return
        if state != OPEN:
            raise UnexpectedFrame("a channel before the connection is open")
        channel = self._channels.by_number.get(number)
        if channel is None:
            self._first_frame(kind, number, start, end)
        elif channel.closing:
            self._closing_channel(channel, kind, start, end)
        elif kind == FRAME_METHOD:
            self._channel_method(channel, start, end)
        else:
            self._content_frame(channel, kind, start, end)

    # -- channel 0 ---------------------------------------------------------------------------------

    def _method_without_channel(self, start: i64, end: i64) -> Method:
        """Return the method of a frame on channel 0, or on a channel that is not open.

        Raises: ChannelFault (504) in place of a soft error, such as for an illegal name, because
        there is no channel to close.
        """
        data = self._reader.data
        try:
            method = decode_method(data, start, end)
        except SoftError as error:
            text = "a method of another class than connection on a channel that is not open"
            raise ChannelFault(text, error.class_id, error.method_id) from None
        self._current.method(0, i64(read_i32_be(data, start)))
        return method

    def _connection_method(self, method: Method) -> None:
        connection = self._connection
        if isinstance(method, ConnectionClose):
            self._channels.write_confirms()
            session = connection.publish_session
            if session is not None and method.reply_code == _REPLY_SUCCESS:
                # The client will not reconnect to ask about its publishes.
                session.end()
            # This halt never ends, so the connection parses no more input.
            connection.halt(HALT_WORK)
            connection.release(True)
        elif connection.state < OPEN:
            self._handshake.step(method)
        elif isinstance(method, ConnectionUpdateSecret):
            # Accept any secret (behaviour 14: update-secret renews tokens), as RabbitMQ does for
            # users of its internal database.  No login expires, so there is nothing to renew.  The
            # secret is neither compared nor stored, and the password stays.  Changes of permissions
            # apply to the connection anyway, and the connections of a deleted user are closed.
            connection.send(0, ConnectionUpdateSecretOk())
        else:
            raise ChannelFault(f"{method.NAME} on channel 0 of an open connection")

    # -- channels ----------------------------------------------------------------------------------

    def _first_frame(self, kind: i64, number: i64, start: i64, end: i64) -> None:
        """Open a channel by its first frame (behaviour 11: it must be channel.open).

        Raises: ChannelFault (504) for any other frame; NotAllowed (530) as `Channels.open`.
        """
        if kind != FRAME_METHOD:
            raise ChannelFault("expected 'channel.open'")
        method = self._method_without_channel(start, end)
        if isinstance(method, ChannelCloseOk):
            # The client answers a close that crossed its own.
            return
        if not isinstance(method, ChannelOpen):
            raise ChannelFault("expected 'channel.open'")
        channel = self._channels.open(number)
        _open_channel(self._connection, channel, method)

    def _closing_channel(self, channel: ServerChannel, kind: i64, start: i64, end: i64) -> None:
        """Drop frames for a channel that the broker closed (behaviour 15: until its close-ok)."""
        if kind != FRAME_METHOD or end - start < 4:
            return
        ids = read_i32_be(self._reader.data, start)
        if ids == CHANNEL_CLOSE_OK:
            self._channels.forget(channel)
        elif ids == CHANNEL_CLOSE:
            # The closes crossed: answer the client's, and keep waiting for its close-ok.
            self._connection.send(channel.number, ChannelCloseOk())

    def _channel_method(self, channel: ServerChannel, start: i64, end: i64) -> None:
        connection = self._connection
        data = self._reader.data
        if channel.content.state != NO_CONTENT:
            self._current.publish(channel.number, connection.published)
            raise UnexpectedFrame("a method in the middle of content")
        ids: i64 = i64(read_i32_be(data, start)) if end - start >= 4 else 0
        if ids == BASIC_PUBLISH:
            self._current.publish(channel.number, connection.published)
            channel.content.begin(data[start + 4 : end])
            return
        # Decoding may find an illegal name, which closes only the channel.
        self._current.method(channel.number, 0)
        if end - start > SHORT_METHOD_BYTES:
            cost = (end - start - SHORT_METHOD_BYTES) // METHOD_BYTES_PER_COST
            connection.scheduler.spent += min(cost, METHOD_VALUES_MAX)
        method = decode_method(data, start, end)
        self._current.method(channel.number, ids)
        if isinstance(method, ChannelClose):
            # Send pending confirms first, because nothing may follow the close-ok on this channel.
            channel.confirms.write()
            # Free the number now, because the client may reuse it after the close-ok.
            self._channels.forget(channel)
            connection.start(close_channel(channel, ChannelCloseOk()))
            return
        core = connection.core
        core.syncs.reply_group = 0
        if core.scheduler.letters.any():
            # Route the dead letters of earlier methods in the batch before handling this method.
            core.scheduler.dead_letter(connection.slice_end - core.scheduler.spent)
        handle(channel, ids >> 16, method)

    def _content_frame(self, channel: ServerChannel, kind: i64, start: i64, end: i64) -> None:
        """Handle a content header or body frame; publish the message if it is complete."""
        self._current.publish(channel.number, self._connection.published)
        whole = False
        if kind == FRAME_HEADER:
            whole = channel.content.take_header(self._reader.data, start, end)
            if channel.content.is_large() and self._publisher.will_record(channel):
                channel.content.journal_body()
        elif kind == FRAME_BODY:
            whole = channel.content.take_body(self._reader.data, start, end)
        if whole:
            self._publisher.take_content(channel)


def _open_channel(connection: ConnectionBase, channel: ServerChannel, method: ChannelOpen) -> None:
    """Answer channel.open, with the progress of a lost channel if the client asks for it.

    `leveret.wire.content.publish_marks` encodes the question and the answer.
    """
    session = connection.publish_session
    if session is not None and method.key:
        key, before = read_channel_key(method.key)
        progress = session.open(key, before)
        known = session.known(before)
        if progress is not None:
            channel.confirms.follow(progress)
            if known is not None:
                connection.start(_answer_later(connection, channel, known))
                return
    connection.send(channel.number, ChannelOpenOk())


def _answer_later(
    connection: ConnectionBase, channel: ServerChannel, known: ChannelProgress
) -> Iterator[int]:
    """Answer once all publishes of the lost channel have reached their queues."""
    while known.busy:
        yield WAIT
    if not channel.awaits_reply():
        return
    # Hold the answer until the reported progress is durable.
    frame_max = int(connection.frame_bytes_max) or 0x7FFF_FFFF
    room = frame_max - FRAME_OVERHEAD_BYTES - _METHOD_BYTES
    core = connection.core
    core.syncs.reply_group = core.journal.last_group
    connection.reply(channel.number, ChannelOpenOk(encode_marks(known.marks(), room)))
