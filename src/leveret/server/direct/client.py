"""An in-process AMQP client of the broker, for requests that arrive over HTTP.

Like every client it exchanges AMQP bytes with an `AmqpConnection`, but without a socket.  So its
publishes, gets and declares are subject to the same checks, limits, confirms and scheduling as
those of other clients.  It needs no password, because the caller has authenticated the user.

One request is in progress at a time.

Bodies of received messages are not copied.  A published body is written frame by frame, as the
connection accepts input, so that other connections are served in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Protocol

from leveret.broker.broker import Broker
from leveret.broker.scheduler.link import Link
from leveret.errors import ConnectionForced, PreconditionFailed, error_for
from leveret.limits import FRAME_BYTES_MAX, FRAME_OVERHEAD_BYTES
from leveret.server.client_socket import ClientSocket
from leveret.session.authentication import Authenticator, Login
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import AmqpConnection
from leveret.session.settings import Peer, SessionSettings, Tokens
from leveret.wire.buffer import BytesWriter, read_i32_be, read_i64_be
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
    PROTOCOL_HEADER,
    write_body,
    write_header,
    write_method,
)
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    decode_method,
)

#: The number of the client's only channel.
_CHANNEL: Final = 1

#: The host in the peer address of the connection; it is not a network address.
_HOST: Final = "direct"

#: The maximum size of a body received in one frame, in effect unlimited.
_ANY_BYTES: Final = 0x7FFF_FFFF

#: The client properties, including the capability to receive a close after a failed login.
_PROPERTIES: Final[dict[str, object]] = {
    "product": "Leveret HTTP API",
    "capabilities": {"publisher_confirms": True, "authentication_failure_close": True},
}


class Runs(Protocol):
    """The part of a `Runner` that runs the effects of a broker."""

    def broken(self, bug: BaseException, /) -> None:
        """Stop the broker after an unexpected exception."""

    def now(self) -> int:
        """Set the core's time; return the monotonic time in ms."""

    def run(self) -> None:
        """Run the effects that the core recorded since the last call."""

    def add(self, link: Link, shell: ClientSocket) -> None:
        """Register the socket of a connection."""

    def remove(self, link: Link) -> None:
        """Remove the socket of a connection."""


class _LetIn(Authenticator):
    """Accepts all logins, because the caller has authenticated the user."""

    def begin(self, login: Login) -> None:
        """Accept the login."""
        login.answer(True)


class ServerMethod:
    """A method that the broker sent, with its content if it has one."""

    def __init__(self, method: Method, properties: bytes = b"", body: bytes = b"") -> None:
        self.method = method
        self.properties = properties
        self.body = body


class DirectClients:
    """Creates the direct clients of one broker."""

    def __init__(
        self, runner: Runs, broker: Broker, settings: SessionSettings, tokens: Tokens
    ) -> None:
        self._runner = runner
        self._broker = broker
        #: The settings of new channels; replaced on reload.
        self.settings = settings
        self._tokens = tokens
        self._numbers = count(1)

    @asynccontextmanager
    async def channel(self, user: str, vhost: str) -> AsyncIterator[DirectClient]:
        """Open a channel to a vhost on behalf of a user, and close it after the `with` block.

        Raises: AmqpError for errors that an AMQP client would receive.
        """
        number = next(self._numbers)
        peer = Peer(_HOST, number, _HOST, number, True)
        connection = AmqpConnection(
            self._broker, self.settings, _LetIn(), self._tokens, peer, self._runner.now()
        )
        client = DirectClient(self._runner, connection)
        try:
            await client.open(user, vhost)
            yield client
        finally:
            client.close()


class DirectClient(ClientSocket):
    """One connection with one channel; requests raise the error if the broker closes either."""

    def __init__(self, runner: Runs, connection: AmqpConnection) -> None:
        self._runner = runner
        self._connection = connection
        self._answers: deque[ServerMethod] = deque()
        self._waiting: asyncio.Future[None] | None = None
        #: The method whose content is being received, and its properties.
        self._begun: Method | None = None
        self._properties = b""
        self._ended = False
        #: Whether the channel is open.
        self._open = False
        runner.add(connection, self)

    # -- for the runner ----------------------------------------------------------------------------

    @property
    def connection(self) -> ClientSession:
        """The session."""
        return self._connection

    def tick(self, now_ms: int) -> None:
        """Check time limits (monotonic ms)."""
        self._connection.tick(now_ms)

    def flush(self) -> None:
        """Parse the session's output into answers."""
        for kind, data, start, end in _frames(self._connection.take_output()):
            self._take(kind, data, start, end)
        self._connection.log.clear()
        if not self._connection.finished:
            self._connection.flushed(False)
        else:
            self._ended = True
        self._wake()

    def abort(self) -> None:
        """Drop the connection."""
        self._ended = True
        self._wake()

    # -- requests ----------------------------------------------------------------------------------

    async def open(self, user: str, vhost: str) -> None:
        """Open the connection and the channel.  Raises: AmqpError."""
        self._feed(PROTOCOL_HEADER)
        await self._expect(ConnectionStart)
        response = b"\x00" + user.encode() + b"\x00"
        self._send(0, ConnectionStartOk(dict(_PROPERTIES), "PLAIN", response, "en_US"))
        tune = (await self._expect(ConnectionTune)).method
        assert isinstance(tune, ConnectionTune)
        # No heartbeats: the connection is never idle for long, and shares the broker's clock.
        self._send(0, ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, ConnectionOpen(vhost))
        await self._expect(ConnectionOpenOk)
        await self.request(ChannelOpen(), ChannelOpenOk)
        self._open = True
        # Publishes use frames of the usual size, as other clients do.
        self._connection.output.body_bytes_max = _ANY_BYTES

    async def request(self, method: Method, *answers: type[Method]) -> ServerMethod:
        """Send a method on the channel; return the answer, which is one of `answers`.

        Raises: AmqpError if the broker closes the channel or the connection.
        """
        self._send(_CHANNEL, method)
        return await self._expect(*answers)

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *answers: type[Method],
    ) -> list[ServerMethod]:
        """Publish a mandatory message; return the methods received up to the first of `answers`.

        Raises: AmqpError.
        """
        writer = BytesWriter()
        try:
            write_method(writer, _CHANNEL, BasicPublish(exchange, routing_key, True))
        except ValueError as wrong:
            raise PreconditionFailed(str(wrong)) from None
        write_header(writer, _CHANNEL, BasicPublish.CLASS_ID, len(body), properties)
        most = int(self._connection.frame_bytes_max) or FRAME_BYTES_MAX
        room = min(most, FRAME_BYTES_MAX) - FRAME_OVERHEAD_BYTES
        write_body(writer, _CHANNEL, body[:room], 0)
        self._feed(writer.getvalue())
        for start in range(room, len(body), room):
            await self._parses()
            piece = BytesWriter()
            write_body(piece, _CHANNEL, body[start : start + room], 0)
            self._feed(piece.getvalue())
        found = [await self._next()]
        while not isinstance(found[-1].method, answers):
            found.append(await self._next())
        return found

    def send(self, method: Method) -> None:
        """Send a method that has no answer."""
        self._send(_CHANNEL, method)

    async def close_channel(self) -> None:
        """Close the channel, after all earlier methods are processed.  Raises: AmqpError."""
        self._return_all()
        await self.request(ChannelClose(200, "", 0, 0), ChannelCloseOk)

    def close(self) -> None:
        """End the connection; its unacked messages are requeued."""
        if self._connection.awaits_reply():
            self._return_all()
            # Closed by the protocol, so that it does not count as a lost connection.
            self._send(0, ConnectionClose(200, "", 0, 0))
        self._connection.lost()
        self._connection.log.clear()
        self._runner.remove(self._connection)
        self._runner.run()

    def _return_all(self) -> None:
        """Requeue unacked messages, since closing the channel would count them as failed."""
        if self._open:
            self._open = False
            self._send(_CHANNEL, BasicNack(0, True, True))

    # -- bytes -------------------------------------------------------------------------------------

    def _send(self, channel: int, method: Method) -> None:
        writer = BytesWriter()
        try:
            write_method(writer, channel, method)
        except (ValueError, TypeError) as wrong:
            # A name that is too long, or a value that a table cannot contain.
            raise PreconditionFailed(str(wrong)) from None
        self._feed(writer.getvalue())

    def _feed(self, data: bytes) -> None:
        try:
            self._connection.receive(data, self._runner.now())
            self._runner.run()
        except Exception as bug:  # noqa: BLE001 (an unexpected error belongs to no request)
            self._runner.broken(bug)

    async def _expect(self, *kinds: type[Method]) -> ServerMethod:
        answer = await self._next()
        while not isinstance(answer.method, kinds):
            answer = await self._next()
        return answer

    async def _parses(self) -> None:
        """Wait until the session has parsed its input or the connection has ended."""
        while self._connection.halted and not self._ended:
            await self._woken()

    async def _next(self) -> ServerMethod:
        """Return the broker's next method.  Raises: AmqpError if it is a close."""
        while not self._answers:
            if self._ended:
                raise ConnectionForced("the connection was closed")
            await self._woken()
        answer = self._answers.popleft()
        method = answer.method
        if isinstance(method, ChannelClose):
            self._open = False
            raise error_for(method.reply_code, method.reply_text, True)
        if isinstance(method, ConnectionClose):
            raise error_for(method.reply_code, method.reply_text, False)
        return answer

    async def _woken(self) -> None:
        """Wait until the runner has flushed the session."""
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _take(self, kind: int, data: bytes, start: int, end: int) -> None:
        """Handle a frame; a body is always in one frame."""
        if kind == FRAME_METHOD:
            method = decode_method(data, start, end)
            if isinstance(method, BasicGetOk | BasicReturn):
                self._begun = method
            else:
                self._answers.append(ServerMethod(method))
        elif kind == FRAME_HEADER:
            self._properties = data[start + CONTENT_HEAD_BYTES : end]
            if read_i64_be(data, start + 4) == 0:
                self._end_content(b"")
        elif kind == FRAME_BODY:
            self._end_content(data[start:end])

    def _end_content(self, body: bytes) -> None:
        """Add a method with its complete content to the answers."""
        method = self._begun
        if method is not None:
            self._begun = None
            self._answers.append(ServerMethod(method, self._properties, body))


def _frames(parts: list[bytes | memoryview]) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield each frame of an output: its kind, and a buffer with the payload's start and end.

    The output ends with a complete frame.  A long payload is a separate part (`FrameOutput`) and is
    not copied.
    """
    left = iter(parts)
    for part in left:
        data, at = bytes(part), 0
        while at < len(data):
            kind, size = data[at], read_i32_be(data, at + 3)
            start = at + FRAME_HEAD_BYTES
            if start < len(data):
                yield kind, data, start, start + size
                at = start + size + 1
            else:
                yield kind, bytes(next(left)), 0, size
                # The next part begins with the end octet of this frame.
                data, at = bytes(next(left)), 1
