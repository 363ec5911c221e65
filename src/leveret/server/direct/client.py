"""A client of AMQP within the broker's process, for what is asked of it by another protocol.

It has a `Connection` as every client has, and speaks AMQP with it byte by byte, without a socket.
So what it publishes, gets and declares meets the same checks, limits and confirms, and takes its
turns among the others.  Whoever makes one has judged the user already: no password is asked for.

One request at a time is under way.

Bodies that it receives are those that the queue holds, without a copy.  A body that it publishes is
written frame by frame as the connection takes input, so that others have their turns in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Protocol

from leveret.broker.node.broker import Broker
from leveret.broker.scheduler.link import Link
from leveret.errors import ConnectionForced, PreconditionFailed, error_for
from leveret.limits import FRAME_BYTES_MAX, FRAME_OVERHEAD_BYTES
from leveret.server.client_socket import ClientSocket
from leveret.session.authentication import Authenticator, Login
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import Connection
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

#: The one channel that it opens.
_CHANNEL: Final = 1

#: Where it says that it comes from: no address of a network.
_HOST: Final = "direct"

#: The largest body that is received in one frame: any.
_ANY_BYTES: Final = 0x7FFF_FFFF

#: What it tells of itself, and that it understands a close in place of silence.
_PROPERTIES: Final[dict[str, object]] = {
    "product": "Leveret HTTP API",
    "capabilities": {"publisher_confirms": True, "authentication_failure_close": True},
}


class Runs(Protocol):
    """What runs the effects of a broker: a `Runner`."""

    def broken(self, bug: BaseException, /) -> None:
        """Stop the broker: this was not expected."""

    def now(self) -> int:
        """Give the core the time; return the monotonic one in ms."""

    def run(self) -> None:
        """Do what the core noted since the last call."""

    def add(self, link: Link, shell: ClientSocket) -> None:
        """Know the shell of a connection."""

    def remove(self, link: Link) -> None:
        """Forget the shell of a connection."""


class _LetIn(Authenticator):
    """Lets everybody in: who asks was judged before."""

    def begin(self, login: Login) -> None:
        """Let the user in."""
        login.answer(True)


class Answer:
    """A method that the broker sent, with its content where it has one."""

    def __init__(self, method: Method, properties: bytes = b"", body: bytes = b"") -> None:
        self.method = method
        self.properties = properties
        self.body = body


class DirectClients:
    """Makes the direct clients of one broker."""

    def __init__(
        self, runner: Runs, broker: Broker, settings: SessionSettings, tokens: Tokens
    ) -> None:
        self._runner = runner
        self._broker = broker
        #: What new channels begin with; others may take their place.
        self.settings = settings
        self._tokens = tokens
        self._numbers = count(1)

    @asynccontextmanager
    async def channel(self, user: str, vhost: str) -> AsyncIterator[DirectClient]:
        """Open a channel as a user in a vhost, until the block ends.

        Raises: AmqpError as a client hears it.
        """
        number = next(self._numbers)
        peer = Peer(_HOST, number, _HOST, number, True)
        connection = Connection(
            self._broker, self.settings, _LetIn(), self._tokens, peer, self._runner.now()
        )
        client = DirectClient(self._runner, connection)
        try:
            await client.open(user, vhost)
            yield client
        finally:
            client.close()


class DirectClient(ClientSocket):
    """One connection with one channel; `request` raises what the broker closes it for."""

    def __init__(self, runner: Runs, connection: Connection) -> None:
        self._runner = runner
        self._connection = connection
        self._answers: deque[Answer] = deque()
        self._waiting: asyncio.Future[None] | None = None
        #: The method whose content is being received, and its properties.
        self._begun: Method | None = None
        self._properties = b""
        self._ended = False
        #: Whether the channel is open.
        self._open = False
        runner.add(connection, self)

    # -- as the runner knows it --------------------------------------------------------------------

    @property
    def connection(self) -> ClientSession:
        """The session."""
        return self._connection

    def tick(self, now_ms: int) -> None:
        """Look at the clock (monotonic ms)."""
        self._connection.tick(now_ms)

    def flush(self) -> None:
        """Take what the session has written."""
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

    # -- asking ------------------------------------------------------------------------------------

    async def open(self, user: str, vhost: str) -> None:
        """Open connection and channel.  Raises: AmqpError."""
        self._feed(PROTOCOL_HEADER)
        await self._expect(ConnectionStart)
        response = b"\x00" + user.encode() + b"\x00"
        self._send(0, ConnectionStartOk(dict(_PROPERTIES), "PLAIN", response, "en_US"))
        tune = (await self._expect(ConnectionTune)).method
        assert isinstance(tune, ConnectionTune)
        # It is not idle for long, and its clock is the broker's.
        self._send(0, ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, ConnectionOpen(vhost))
        await self._expect(ConnectionOpenOk)
        await self.request(ChannelOpen(), ChannelOpenOk)
        self._open = True
        # Publishes use frames of the usual size, as other clients do.
        self._connection.output.body_bytes_max = _ANY_BYTES

    async def request(self, method: Method, *answers: type[Method]) -> Answer:
        """Send a method on the channel; return the answer, which is one of `answers`.

        Raises: AmqpError that the broker closed the channel, or the connection, with.
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
    ) -> list[Answer]:
        """Publish as mandatory; return what came up to the first of `answers`, the last one.

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
        """Close the channel; all that was sent before is done then.  Raises: AmqpError."""
        self._return_all()
        await self.request(ChannelClose(200, "", 0, 0), ChannelCloseOk)

    def close(self) -> None:
        """End the connection; what it holds unacked is requeued."""
        if self._connection.awaits_reply():
            self._return_all()
            # In order, so that it is no connection that was lost.
            self._send(0, ConnectionClose(200, "", 0, 0))
        self._connection.lost()
        self._connection.log.clear()
        self._runner.remove(self._connection)
        self._runner.run()

    def _return_all(self) -> None:
        """Requeue what is unacked: were it left to the end of the channel, it would have failed."""
        if self._open:
            self._open = False
            self._send(_CHANNEL, BasicNack(0, True, True))

    # -- bytes -------------------------------------------------------------------------------------

    def _send(self, channel: int, method: Method) -> None:
        writer = BytesWriter()
        try:
            write_method(writer, channel, method)
        except (ValueError, TypeError) as wrong:
            # A name that is too long, or an argument that a table cannot hold.
            raise PreconditionFailed(str(wrong)) from None
        self._feed(writer.getvalue())

    def _feed(self, data: bytes) -> None:
        try:
            self._connection.receive(data, self._runner.now())
            self._runner.run()
        except Exception as bug:  # noqa: BLE001 (what the session did not expect is no request's)
            self._runner.broken(bug)

    async def _expect(self, *kinds: type[Method]) -> Answer:
        answer = await self._next()
        while not isinstance(answer.method, kinds):
            answer = await self._next()
        return answer

    async def _parses(self) -> None:
        """Wait until the input is parsed or the connection has ended."""
        while self._connection.halted and not self._ended:
            await self._woken()

    async def _next(self) -> Answer:
        """Return what the broker sends next.  Raises: AmqpError where that is a close."""
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
        """Wait until the broker has worked on the connection."""
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
                self._answers.append(Answer(method))
        elif kind == FRAME_HEADER:
            self._properties = data[start + CONTENT_HEAD_BYTES : end]
            if read_i64_be(data, start + 4) == 0:
                self._end_content(b"")
        elif kind == FRAME_BODY:
            self._end_content(data[start:end])

    def _end_content(self, body: bytes) -> None:
        """Deliver a method with its complete content."""
        method = self._begun
        if method is not None:
            self._begun = None
            self._answers.append(Answer(method, self._properties, body))


def _frames(parts: list[bytes | memoryview]) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield the frames of an output: the kind of each, and the bytes, start and end of its payload.

    The output ends with a whole frame.  A long payload is a part by itself (`FrameOutput`), which
    is not copied.
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
