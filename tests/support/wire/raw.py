"""A raw AMQP 0-9-1 client for tests: it writes exactly the bytes of a test and hides nothing.

It is not a client library: it keeps no channel state, negotiates only as told, and can send illegal
input on purpose.  The bytes are encoded and decoded by raw_codec.py.

Invariants: nothing sleeps; every wait is a read with a deadline (`SECONDS_MAX`); an unexpected
frame fails the test at once, and is shown.
"""

from __future__ import annotations

import socket
import ssl
import struct
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Final, Self

from support.wire.raw_codec import (
    BODY,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    METHOD,
    NAMES,
    PROTOCOL_HEADER,
    SHAPES,
    WITH_CONTENT,
    Reader,
    Typed,
    content,
    decode_fields,
    decode_properties,
    frame,
    header,
    method,
    properties,
    publish,
    table,
)

__all__ = [
    "BODY",
    "HEADER",
    "HEARTBEAT",
    "METHOD",
    "PROTOCOL_HEADER",
    "Closed",
    "Connection",
    "Exchanges",
    "Frame",
    "Login",
    "Method",
    "Typed",
    "blind_login",
    "bound_queue",
    "connect",
    "content",
    "decode_properties",
    "dial",
    "frame",
    "header",
    "method",
    "properties",
    "publish",
    "table",
]

#: A reply that takes longer is a failure, even on a machine with ten processes per core.
#: RabbitMQ's silent close takes 3 s.
SECONDS_MAX: Final = 60.0


@dataclass
class Method:
    """A received method, with its content if it has one."""

    channel: int
    name: str
    fields: dict[str, Any]
    body: bytes = b""
    properties: bytes = b""  # as received, from the flags on

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Frame:
    """A received frame."""

    kind: int
    channel: int
    payload: bytes


class Closed(Exception):
    """The broker closed the socket."""


#: The default capabilities of this client, which are pika's.
CAPABILITIES: Final = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


@dataclass
class Login:
    """The parameters for opening a connection; a test changes those under test."""

    user: str = "guest"
    password: str = "guest"
    vhost: str = "/"
    mechanism: str = "PLAIN"
    response: bytes | None = None
    capabilities: dict[str, bool] = field(default_factory=lambda: dict(CAPABILITIES))
    channel_max: int | None = None  # None: as offered
    frame_max: int | None = None
    heartbeat: int = 0

    def sasl_response(self) -> bytes:
        """The response of start-ok."""
        if self.response is not None:
            return self.response
        return f"\0{self.user}\0{self.password}".encode()


def blind_login(user: str) -> tuple[bytes, ...]:
    """Return the bytes that log in, with the user's name as password, and open `/`.

    They do not depend on the answers.
    """
    response = f"\0{user}\0{user}"
    fields = {"client_properties": {}, "mechanism": "PLAIN", "response": response}
    return (
        PROTOCOL_HEADER,
        method(0, "connection.start-ok", **fields, locale="en_US"),
        method(0, "connection.tune-ok", channel_max=1, frame_max=131_072, heartbeat=0),
        method(0, "connection.open", vhost="/"),
    )


class Connection:
    """One socket.  `bytewise` sends every byte separately; `context` enables TLS."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        bytewise: bool = False,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.socket = socket.create_connection((host, port), SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        self.bytewise = bytewise
        self.buffer = b""
        self.server_properties: dict[str, Any] = {}
        self.tune: Method | None = None
        self.was_reset = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    # -- bytes

    def send(self, *parts: bytes) -> None:
        """Send the bytes: all at once or one by one."""
        data = b"".join(parts)
        if not self.bytewise:
            self.socket.sendall(data)
            return
        for i in range(len(data)):
            self.socket.sendall(data[i : i + 1])

    def take(self, count: int) -> bytes:
        """The next `count` bytes.  Raises: Closed, TimeoutError."""
        while len(self.buffer) < count:
            try:
                data = self.socket.recv(262_144)
            except ConnectionResetError:
                self.was_reset = True
                data = b""
            if not data:
                raise Closed(f"the broker closed the socket; left over: {self.buffer!r}")
            self.buffer += data
        piece, self.buffer = self.buffer[:count], self.buffer[count:]
        return piece

    def expect_end(self) -> None:
        """Expect the end of the stream with nothing before it, and no reset, which loses input."""
        try:
            extra = self.take(1)
        except Closed:
            assert not self.buffer
            assert not self.was_reset
            return
        raise AssertionError(f"expected the end of the stream, got {extra + self.buffer!r}")

    def expect_heartbeats_and_end(self) -> None:
        """Expect heartbeats, any number, and then the end of the stream."""
        try:
            while True:
                assert self.next_frame() == Frame(HEARTBEAT, 0, b"")
        except Closed:
            assert not self.buffer

    # -- frames and methods

    def next_frame(self) -> Frame:
        """The next frame of any kind.  Raises: Closed, TimeoutError."""
        kind, channel, size = struct.unpack(">BHI", self.take(7))
        payload = self.take(size)
        assert self.take(1) == FRAME_END
        return Frame(kind, channel, payload)

    def next_method(self) -> Method:
        """The next method with its whole content; heartbeats are skipped."""
        one = self._frame_but_heartbeats()
        assert one.kind == METHOD, f"expected a method, got {one}"
        ids = struct.unpack(">HH", one.payload[:4])
        name = NAMES[ids]
        got = Method(one.channel, name, decode_fields(SHAPES[name].fields, Reader(one.payload[4:])))
        if name in WITH_CONTENT:
            self._read_content(got)
        return got

    def _frame_but_heartbeats(self) -> Frame:
        while (one := self.next_frame()).kind == HEARTBEAT:
            assert one.channel == 0
            assert not one.payload
        return one

    def _read_content(self, got: Method) -> None:
        head = self._frame_but_heartbeats()
        assert (head.kind, head.channel) == (HEADER, got.channel)
        class_id, weight, size = struct.unpack(">HHQ", head.payload[:12])
        assert (class_id, weight) == (60, 0)
        got.properties = head.payload[12:]
        pieces: list[bytes] = []
        left = size
        while left > 0:
            piece = self._frame_but_heartbeats()
            assert (piece.kind, piece.channel) == (BODY, got.channel)
            assert piece.payload, "an empty body frame"
            pieces.append(piece.payload)
            left -= len(piece.payload)
        assert left == 0
        got.body = b"".join(pieces)

    def expect(self, channel: int, name: str) -> Method:
        """Expect this method next and return it."""
        got = self.next_method()
        assert (got.channel, got.name) == (channel, name), f"expected {name} on {channel}: {got}"
        return got

    def call(self, channel: int, name: str, **values: Any) -> Method:
        """Send a method and expect its reply `<name>-ok` next."""
        self.send(method(channel, name, **values))
        return self.expect(channel, name + "-ok")

    # -- the connection's life

    def handshake(self, login: Login | None = None) -> Self:
        """Open the connection."""
        login = login or Login()
        self.start(login)
        self.tune_ok(login)
        self.send(method(0, "connection.open", vhost=login.vhost))
        self.expect(0, "connection.open-ok")
        return self

    def start(self, login: Login) -> None:
        """The protocol header, start and start-ok."""
        self.send(PROTOCOL_HEADER)
        start = self.expect(0, "connection.start")
        assert (start.major, start.minor) == (0, 9)
        self.server_properties = start.server_properties
        client = {"product": "raw test", "capabilities": login.capabilities}
        self.send(
            method(
                0, "connection.start-ok", client_properties=client, mechanism=login.mechanism,
                response=login.sasl_response(), locale="en_US",
            )
        )  # fmt: skip

    def tune_ok(self, login: Login) -> None:
        """Tune and tune-ok."""
        offer = self.tune = self.expect(0, "connection.tune")
        self.send(
            method(
                0,
                "connection.tune-ok",
                channel_max=offer.channel_max if login.channel_max is None else login.channel_max,
                frame_max=offer.frame_max if login.frame_max is None else login.frame_max,
                heartbeat=login.heartbeat,
            )
        )

    def open_channel(self, channel: int = 1) -> int:
        """Open a channel and return its number."""
        self.call(channel, "channel.open")
        return channel

    def close(self) -> None:
        """Close by the handshake; the side that sent the close closes the socket after close-ok."""
        self.call(0, "connection.close", code=200, text="bye")
        self.socket.close()

    def expect_channel_close(
        self, channel: int, code: int, text: str = "", ids: tuple[int, int] | None = None
    ) -> Method:
        """Expect channel.close with the code and a text that contains `text`; answer close-ok."""
        got = self.expect(channel, "channel.close")
        self._check_close(got, code, text, ids)
        self.send(method(channel, "channel.close-ok"))
        return got

    def expect_connection_close(
        self, code: int, text: str = "", ids: tuple[int, int] | None = None
    ) -> Method:
        """Expect connection.close with the code; answer; expect the end of the stream."""
        got = self.expect(0, "connection.close")
        self._check_close(got, code, text, ids)
        self.send(method(0, "connection.close-ok"))
        self.expect_end()
        return got

    def _check_close(self, got: Method, code: int, text: str, ids: tuple[int, int] | None) -> None:
        assert got.code == code, got
        assert text in got.text, f"expected {text!r} in {got.text!r}"
        if ids is not None:
            assert (got.class_id, got.method_id) == ids, got

    # -- common operations of tests

    def declare(self, channel: int, queue: str = "", **values: Any) -> Method:
        """Declare a queue."""
        return self.call(channel, "queue.declare", queue=queue, **values)

    def get(self, channel: int, queue: str, *, no_ack: bool = True) -> Method | None:
        """Get a message; None if the queue is empty."""
        self.send(method(channel, "basic.get", queue=queue, no_ack=no_ack))
        got = self.next_method()
        assert got.channel == channel, got
        if got.name == "basic.get-empty":
            return None
        assert got.name == "basic.get-ok", got
        return got

    def drain(self, channel: int, queue: str) -> list[bytes]:
        """Get all bodies that are ready."""
        bodies = []
        while (got := self.get(channel, queue)) is not None:
            bodies.append(got.body)
        return bodies

    def sync(self, channel: int) -> None:
        """Make a round trip on the channel: all earlier input has then been handled."""
        self.call(channel, "basic.qos")


def connect(uri: str, login: Login | None = None, *, bytewise: bool = False) -> Connection:
    """Connect to the URI's host and open the connection."""
    connection = dial(uri, bytewise=bytewise)
    try:
        return connection.handshake(login)
    except BaseException:
        connection.socket.close()
        raise


def dial(uri: str, *, bytewise: bool = False) -> Connection:
    """Connect to the URI's host and send nothing yet."""
    parts = urllib.parse.urlsplit(uri)
    return Connection(parts.hostname or "127.0.0.1", parts.port or 5672, bytewise=bytewise)


# -- for tests of exchanges -------------------------------------------------------------------


class Exchanges:
    """Declares exchanges that are deleted after the test."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.declared: list[str] = []

    def __call__(self, type: str = "direct", **values: Any) -> str:
        exchange = f"{self.name}-x{len(self.declared)}"
        self.connection.call(1, "exchange.declare", exchange=exchange, type=type, **values)
        self.declared.append(exchange)
        return exchange


def bound_queue(connection: Connection, exchange: str, *keys: str, **arguments: Any) -> str:
    """An exclusive queue bound by the keys, all with the arguments."""
    queue: str = connection.declare(1, exclusive=True).queue
    for key in keys:
        values = {"queue": queue, "exchange": exchange, "routing_key": key}
        connection.call(1, "queue.bind", **values, arguments=arguments)
    return queue
