"""The peer of the client under test: a broker that sends exactly the methods of a test.

`Peer` feeds a sans-IO session from memory, whole or byte by byte; `ScriptedBroker` plays a script
over a socket, for tests of the shells with a broker that nacks, blocks, falls silent or hangs up.
Both use the wire codec, which has its own tests against pamqp.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final, Self, TypeVar

from leveret.client.events import (
    ChannelEnded,
    ChannelOwner,
    Delivered,
    Event,
    Replied,
    Settled,
    Token,
)
from leveret.client.message import Message, ReturnedMessage
from leveret.client.session.channel import ChannelSession
from leveret.client.session.connection import ClientConnection
from leveret.client.session.states import ChannelState, ConnectionState
from leveret.client.uri import Parameters
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    HEARTBEAT,
    PROTOCOL_HEADER,
    FrameReader,
    write_body,
    write_header,
    write_method,
)
from leveret.wire.method import Method
from leveret.wire.methods import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    decode_method,
)

M = TypeVar("M", bound=Method)

NO_PROPERTIES: Final = b"\x00\x00"
SECONDS_MAX: Final = 60.0

START: Final = ConnectionStart(server_properties={"product": "Peer"}, mechanisms=b"AMQPLAIN PLAIN")
TUNE: Final = ConnectionTune(channel_max=2047, frame_max=131_072, heartbeat=60)


# -- bytes of the broker ---------------------------------------------------------------------------


def frame(channel: int, method: Method) -> bytes:
    """Return the frame of a method."""
    w = BytesWriter()
    write_method(w, channel, method)
    return w.getvalue()


def header(channel: int, size: int, properties: bytes = NO_PROPERTIES, class_id: int = 60) -> bytes:
    """Return the frame of a content header."""
    w = BytesWriter()
    write_header(w, channel, class_id, size, properties)
    return w.getvalue()


def body(channel: int, piece: bytes) -> bytes:
    """Return one body frame, even for an empty piece."""
    head = b"\x03" + channel.to_bytes(2) + len(piece).to_bytes(4)
    return head + piece + b"\xce"


def content(
    channel: int,
    method: Method,
    data: bytes,
    properties: bytes = NO_PROPERTIES,
    frame_max: int = 131_072,
) -> bytes:
    """Return the frames of a method with its content."""
    w = BytesWriter()
    write_method(w, channel, method)
    write_header(w, channel, 60, len(data), properties)
    write_body(w, channel, data, frame_max)
    return w.getvalue()


# -- the session's surroundings --------------------------------------------------------------------


class Waiter(Token):
    """A token that records its reply and its end."""

    def __init__(self) -> None:
        self.replies: list[Replied] = []
        self.ends: list[Exception | None] = []

    def replied(self, reply: Replied) -> None:
        """Record the reply."""
        self.replies.append(reply)

    def end(self, error: Exception | None) -> None:
        """Record the end."""
        self.ends.append(error)


class Application(ChannelOwner):
    """The channel of a shell, which only records its acks."""

    def __init__(self) -> None:
        self.acks: list[tuple[str, int, bool]] = []

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Record an ack."""
        self.acks.append(("ack", delivery_tag, multiple))

    def nack(self, delivery_tag: int = 0, *, multiple: bool = False, requeue: bool = True) -> None:
        """Record a nack."""
        self.acks.append(("nack", delivery_tag, requeue and not multiple))

    def reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """Record a reject."""
        self.acks.append(("reject", delivery_tag, requeue))

    def delivered(self, event: Delivered) -> None:
        """Ignore a delivery: tests read events."""

    def came_back(self, message: ReturnedMessage) -> None:
        """Ignore a return: tests read events."""

    def settled(self, event: Settled) -> None:
        """Ignore confirms: tests read events."""

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Ignore a cancel: tests read events."""

    def flow_changed(self, active: bool) -> None:
        """Ignore a flow: tests read events."""

    def ended(self, event: ChannelEnded) -> None:
        """Ignore an end: tests read events."""


class Peer:
    """A broker in memory with the session under test."""

    def __init__(self, bytewise: bool, parameters: Parameters | None = None) -> None:
        self.bytewise = bytewise
        self.session = ClientConnection(parameters or Parameters(), 0)
        self.application = Application()
        self._reader = FrameReader(0)

    def feed(self, *data: bytes) -> list[Event | Message]:
        """Feed bytes to the session, whole or one by one; return all events.

        For deliveries, which may be grouped or not, it returns the messages.
        """
        whole = b"".join(data)
        pieces = [bytes((byte,)) for byte in whole] if self.bytewise else [whole]
        found: list[Event | Message] = []
        for piece in pieces:
            for event in self.session.receive(piece):
                found += event.messages if isinstance(event, Delivered) else [event]
        return found

    def sent(self) -> list[tuple[int, Method | bytes]]:
        """Return the session's output: methods, and payloads of other frames."""
        self._reader.feed(self.session.data_to_send().removeprefix(PROTOCOL_HEADER))
        found: list[tuple[int, Method | bytes]] = []
        while self._reader.next():
            data, start, end = self._reader.data, self._reader.start, self._reader.end
            is_method = self._reader.kind == FRAME_METHOD
            read = decode_method(data, start, end) if is_method else data[start:end]
            found.append((self._reader.channel, read))
        return found

    def sent_one(self, kind: type[M], channel: int = 0) -> M:
        """Return the session's output, which must be one method of that kind."""
        found = self.sent()
        assert len(found) == 1, found
        assert found[0][0] == channel
        method = found[0][1]
        assert isinstance(method, kind), method
        return method

    def open(self) -> Self:
        """Do the handshake."""
        self.feed(frame(0, START), frame(0, TUNE), frame(0, ConnectionOpenOk()))
        assert self.session.state is ConnectionState.OPEN
        self.sent()
        return self

    def channel(self) -> ChannelSession:
        """Open a channel."""
        channel = self.session.open_channel(self.application, Waiter())
        self.feed(frame(channel.number, ChannelOpenOk()))
        assert channel.state is ChannelState.OPEN
        self.sent()
        return channel


# -- a broker with a script ------------------------------------------------------------------------


class Line:
    """The broker's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.heartbeats = 0
        self._reader = FrameReader(0)

    def send(self, *data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(b"".join(data))

    def receive(self, kind: type[M]) -> tuple[int, M]:
        """Return the next method, which must be of that kind, and its channel; skip content."""
        while True:
            while self._reader.next():
                if self._reader.kind == FRAME_HEARTBEAT:
                    self.heartbeats += 1
                if self._reader.kind != FRAME_METHOD:
                    continue
                method = decode_method(self._reader.data, self._reader.start, self._reader.end)
                if isinstance(method, kind):
                    return self._reader.channel, method
                raise AssertionError(f"{method} came, not {kind.NAME}")
            data = self.socket.recv(65_536)
            if not data:
                raise AssertionError(f"the client hung up before {kind.NAME}")
            self._reader.feed(data)

    def receive_heartbeats(self, count: int) -> None:
        """Send heartbeats and read until that many have been received."""
        while self.heartbeats < count:
            while self._reader.next():
                assert self._reader.kind == FRAME_HEARTBEAT
                self.heartbeats += 1
            self.send(HEARTBEAT)
            self._reader.feed(self.socket.recv(65_536))

    def receive_header(self) -> None:
        """Read the protocol header."""
        first = b""
        while len(first) < len(PROTOCOL_HEADER):
            first += self.socket.recv(len(PROTOCOL_HEADER) - len(first)) or b"?"
        assert first == PROTOCOL_HEADER

    def handshake(
        self, tune: ConnectionTune = TUNE, refusal: ConnectionClose | None = None
    ) -> Self:
        """Do the handshake; a `refusal` is sent as its last method, and its answer awaited."""
        self.receive_header()
        self.send(frame(0, START))
        self.receive(ConnectionStartOk)
        self.send(frame(0, tune))
        self.receive(ConnectionTuneOk)
        self.receive(ConnectionOpen)
        if refusal is None:
            self.send(frame(0, ConnectionOpenOk()))
        else:
            self.send(frame(0, refusal))
            self.receive(ConnectionCloseOk)
        return self

    def open_channel(self) -> int:
        """Answer a channel.open and return the channel."""
        channel, _ = self.receive(ChannelOpen)
        self.send(frame(channel, ChannelOpenOk()))
        return channel

    def answer_close(self) -> None:
        """Answer a connection.close."""
        self.receive(ConnectionClose)
        self.send(frame(0, ConnectionCloseOk()))

    def wait_for_end(self) -> None:
        """Read until the client hangs up."""
        while self.socket.recv(65_536):
            pass


class ScriptedBroker:
    """Listens on a free loopback port and plays `script` with the first client.

    Leaving the context raises any exception of the script.
    """

    def __init__(
        self, script: Callable[[Line], None], ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._script = script
        self._ssl_context = ssl_context
        self._error: BaseException | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS_MAX)
        self._thread = threading.Thread(target=self._play, daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def uri(self) -> str:
        """Its URI."""
        return f"amqp://127.0.0.1:{self.port}?connection_timeout={int(SECONDS_MAX * 1000)}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._thread.join(SECONDS_MAX)
        self._listener.close()
        if kind is None and self._error is not None:
            raise self._error

    def next_line(self) -> Line:
        """Accept the next client, on which the script must hang up."""
        sock, _ = self._listener.accept()
        sock.settimeout(SECONDS_MAX)
        return Line(sock)

    def _play(self) -> None:
        try:
            sock, _ = self._listener.accept()
            sock.settimeout(SECONDS_MAX)
            with sock:
                if self._ssl_context is None:
                    self._script(Line(sock))
                    return
                with self._ssl_context.wrap_socket(sock, server_side=True) as secure:
                    self._script(Line(secure))
        except BaseException as error:  # noqa: BLE001 -- raised again where the test can see it
            self._error = error
