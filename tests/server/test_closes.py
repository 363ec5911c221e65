"""A close arrives: what the broker sent last is read by a peer that is still sending.

A socket that is closed with unread input sends a reset, which destroys what its peer has not read.
Every refusal, answer and close here is followed by far more input than one read takes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import pytest
import uvloop

from leveret.app.embedded import Handles
from leveret.limits import LINGER_SECONDS_MAX, OUTPUT_BYTES_HIGH
from leveret.server.acceptor import Acceptor
from leveret.server.amqp import ClientProtocol
from leveret.server.closing.lingering import (
    LINGER_BYTES_MAX,
    LINGER_IDLE_SECONDS_MAX,
    LINGER_READ_MS,
    Lingering,
    LingeringAccept,
    LingeringTransport,
)
from leveret.session.admission import ROOM, WAIT, Admission, Slot
from leveret.testing import Broker
from leveret.wire.frames import PROTOCOL_HEADER
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of, read_all
from support.node.virtual_loop import lapse
from support.node.virtual_loop import run as virtual
from support.wire import hare, raw
from support.wire.hare import hare_port

#: What is on its way when the broker closes.
MORE: Final = bytes(24 * 1024 * 1024)

CLOSE: Final = raw.method(0, "connection.close", code=200, text="bye")
CLOSE_OK: Final = raw.method(0, "connection.close-ok")

#: Neither the end of a frame nor the size of one.
BAD_FRAME: Final = raw.frame(1, 0, b"\0" * 9)[:-1] + b"\0"

GUEST: Final = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="


def put(*fields: str) -> bytes:
    """Return the head of a request whose body never comes whole."""
    lines = ["PUT /api/queues/%2F/q HTTP/1.1", "Host: localhost", *fields]
    return "\r\n".join([*lines, "Content-Length: 100000000", "", ""]).encode()


@dataclass
class Served:
    """A broker with all its listeners, and what a client needs for them."""

    process: BrokerProcess
    pki: Pki

    def dial(self, listener: str) -> socket.socket:
        """Return a connection to a listener, after the handshake of TLS for `amqps` and `https`."""
        if listener == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(raw.SECONDS_MAX)
            sock.connect(str(self.process.data_dir / "management.sock"))
            return sock
        ports: dict[str, Callable[[], int]] = {
            "amqp": lambda: self.process.port,
            "haremq": lambda: hare_port(self.process),
        }
        port = ports.get(listener, lambda: port_of(self.process, listener.removeprefix("bare ")))()
        sock = socket.create_connection(("localhost", port), raw.SECONDS_MAX)
        if listener in ("amqps", "https"):
            return self.pki.trusting().wrap_socket(sock, server_hostname="localhost")
        return sock

    def amqp(self, tls: bool) -> raw.Connection:
        """Return a connection of AMQP."""
        context = self.pki.trusting() if tls else None
        port = port_of(self.process) if tls else self.process.port
        return raw.Connection("localhost", port, context=context)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker on uvloop that listens for everything."""
    folder: Path = tmp_path_factory.mktemp("closes")
    pki = Pki(folder)
    with pki.broker_process(folder / "data", haremq_port="0") as process:
        yield Served(process, pki)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_close_ok_arrives_while_more_frames_are_on_their_way(served: Served, tls: bool) -> None:
    with served.amqp(tls) as connection:
        connection.handshake()
        connection.send(CLOSE, MORE)
        assert read_all(connection.socket) == CLOSE_OK


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_text_of_a_close_by_the_broker_arrives(served: Served, tls: bool) -> None:
    """The client's own close crosses the broker's, which ends the wait for close-ok."""
    with served.amqp(tls) as connection:
        connection.handshake()
        connection.send(BAD_FRAME, CLOSE, MORE)
        said = read_all(connection.socket)
        assert said.startswith(b"\x01\0\0")
        assert b"FRAME_ERROR" in said
        assert said.endswith(CLOSE_OK)


def test_the_refusal_of_a_login_arrives(served: Served) -> None:
    with served.amqp(tls=False) as connection:
        connection.start(raw.Login(password="wrong"))
        connection.send(CLOSE, MORE)
        assert b"ACCESS_REFUSED" in read_all(connection.socket)


async def unsent_and_finished(handles: object) -> tuple[int, bool]:
    """Return what the transport of the only connection holds, and whether its session is over."""
    assert isinstance(handles, Handles)
    (shell,) = handles._engine.runner.shells  # noqa: SLF001 (there is no other way to look)
    assert isinstance(shell, ClientProtocol)
    return shell._transport.get_write_buffer_size(), shell.connection.finished  # noqa: SLF001


def consume_unread(connection: raw.Connection) -> None:
    """Open a connection and have 20 MB delivered to it, which nothing reads."""
    connection.handshake()
    connection.open_channel(1)
    connection.declare(1, "q", exclusive=True)
    connection.send(*(raw.publish(1, "", "q", bytes(100_000)) for _ in range(200)))
    connection.call(1, "basic.consume", queue="q", no_ack=True)


def test_a_session_whose_peer_does_not_read_its_end_is_dropped() -> None:
    with Broker() as broker, raw.Connection("127.0.0.1", broker.port) as connection:
        consume_unread(connection)

        def look() -> tuple[int, bool]:
            return broker._call(unsent_and_finished)  # noqa: SLF001 (as above)

        while look()[0] < OUTPUT_BYTES_HIGH:
            pass
        connection.send(CLOSE)
        while not look()[1]:
            pass
        broker.advance(LINGER_SECONDS_MAX - 5, heartbeats=False)
        assert broker.connections() == 1
        broker.advance(10, heartbeats=False)
        assert broker.connections() == 0


async def ending_and_lingering(handles: object) -> tuple[bool, bool]:
    """Return whether the transport of the only connection ends, and whether its time counts."""
    assert isinstance(handles, Handles)
    (shell,) = handles._engine.runner.shells  # noqa: SLF001 (as above)
    assert isinstance(shell, ClientProtocol)
    admission = shell._listener.admission  # noqa: SLF001 (as above)
    return shell._transport.is_closing(), shell.slot in admission.lingering  # noqa: SLF001


def test_a_peer_that_ends_its_side_and_does_not_read_has_no_more_time_than_others() -> None:
    """The loop alone would wait for it for ever, and close the socket for nobody."""
    with Broker() as broker, raw.Connection("127.0.0.1", broker.port) as connection:
        consume_unread(connection)
        while broker._call(unsent_and_finished)[0] == 0:  # noqa: SLF001 (as above)
            pass
        connection.socket.shutdown(socket.SHUT_WR)
        while not (found := broker._call(ending_and_lingering))[0]:  # noqa: SLF001 (as above)
            pass
        assert found == (True, True)


@pytest.mark.parametrize(
    ("listener", "request_", "answer"),
    [
        ("amqp", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
        ("amqp", b"AMQP\x03\1\0\0", PROTOCOL_HEADER),
        ("amqps", b"AMQP\x03\1\0\0", PROTOCOL_HEADER),
        ("bare amqps", PROTOCOL_HEADER, b"this port speaks TLS; use amqps://"),
        ("bare amqps", b"\x16\x03\x01\x00\x02\xff\xff", b"\x15\x03"),
        ("haremq", hare.frame("openChannelRequest", rid="its-id", cid="c") + bytes(16), b"its-id"),
        ("http", PROTOCOL_HEADER, b"this port speaks HTTP"),
        ("http", put(), b"HTTP/1.1 401 "),
        ("https", put(), b"HTTP/1.1 401 "),
        ("http", put(GUEST), b"HTTP/1.1 413 "),
        ("http", put(GUEST, "Content-Encoding: gzip"), b"HTTP/1.1 415 "),
        ("http", b"nonsense\r\n\r\n", b" 400 Bad Request"),
        ("unix", put(), b"HTTP/1.1 413 "),
    ],
)
def test_a_refusal_arrives(served: Served, listener: str, request_: bytes, answer: bytes) -> None:
    with served.dial(listener) as sock:
        sock.sendall(request_ + MORE)
        assert answer in read_all(sock)


# -- how a socket lingers --------------------------------------------------------------------------

#: What is sent before the close: more than the kernel takes at once.
LAST: Final = b"last words " * 1_000_000


class Talker(asyncio.Protocol):
    """Answers its first input by `LAST`, and closes."""

    def __init__(self, network: str, gone: asyncio.Event) -> None:
        self.slot = Slot(network, lambda: None)
        self.lost = 0
        self._gone = gone
        self._transport = asyncio.Transport()
        self._admission: Admission | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport."""
        assert isinstance(transport, LingeringTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer, close, and do what a protocol may do that has not noticed yet."""
        self._transport.write(LAST)
        self._transport.close()
        assert self._transport.is_closing()
        self._transport.write(b"too late")
        self._transport.writelines([b"too late"])
        self._transport.pause_reading()
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, which comes once everything is sent."""
        self.lost += 1
        self._gone.set()


@dataclass
class Door:
    """An acceptor whose connections are `Talker`s."""

    admission: Admission
    made: list[Talker]
    gone: asyncio.Event
    port: int

    async def talk(self) -> socket.socket:
        """Return a connection that has sent `MORE` and read nothing."""
        loop = asyncio.get_running_loop()
        sock = socket.create_connection(("127.0.0.1", self.port), raw.SECONDS_MAX)
        await loop.run_in_executor(None, sock.sendall, MORE)
        return sock

    async def left(self) -> None:
        """Wait until a slot is free again."""
        free = asyncio.Event()
        self.admission.when_left(free.set)
        await free.wait()


def at_a_door(
    scene: Callable[[Door], Any], places: int = 10, run: Callable[..., Any] = asyncio.run
) -> None:
    """Play a scene."""

    async def play() -> None:
        gone = asyncio.Event()
        made: list[Talker] = []
        admission = Admission(places)

        def make(network: str) -> tuple[asyncio.Protocol, Slot]:
            talker = Talker(network, gone)
            made.append(talker)
            return talker, talker.slot

        listening = socket.create_server(("127.0.0.1", 0))
        acceptor = Acceptor(listening, admission, make, lambda *_: None)
        try:
            await scene(Door(admission, made, gone, listening.getsockname()[1]))
        finally:
            acceptor.close()

    run(play())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_everything_is_sent_and_the_place_is_kept_until_the_peer_closes(
    run: Callable[..., Any],
) -> None:
    async def scene(door: Door) -> None:
        loop = asyncio.get_running_loop()
        with await door.talk() as sock:
            # Nothing is lost while the peer does not read, and its protocol lives as long.
            assert not door.gone.is_set()
            assert await loop.run_in_executor(None, read_all, sock) == LAST
            await door.gone.wait()
            (talker,) = door.made
            assert list(door.admission.slots) == list(door.admission.lingering) == [talker.slot]
            # A protocol that gives its place back does not free what the socket still takes.
            door.admission.leave(talker.slot)
            assert len(door.admission.slots) == 1
            left = asyncio.ensure_future(door.left())
            await asyncio.sleep(0)
        await left
        assert not door.admission.slots
        assert not door.admission.lingering
        assert talker.lost == 1

    at_a_door(scene, run=run)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_lingering_socket_is_the_first_to_leave_its_place(run: Callable[..., Any]) -> None:
    async def scene(door: Door) -> None:
        loop = asyncio.get_running_loop()
        older = socket.create_connection(("127.0.0.1", door.port), raw.SECONDS_MAX)
        with older, await door.talk() as sock:
            await loop.run_in_executor(None, read_all, sock)
            await door.gone.wait()
            silent, talker = door.made
            assert list(door.admission.lingering) == [talker.slot]
            left = asyncio.ensure_future(door.left())
            await asyncio.sleep(0)
            assert door.admission.request("192.0.2.1") == WAIT
            await left
            assert list(door.admission.slots) == [silent.slot]
            assert door.admission.request("192.0.2.1") == ROOM

    at_a_door(scene, places=2, run=run)


class Stub(asyncio.Transport):
    """A transport whose peer the test plays."""

    def __init__(self) -> None:
        super().__init__()
        self.upper: asyncio.BaseProtocol = asyncio.Protocol()
        self.unsent = 0
        self.ended = False
        self._reads = False
        self.aborted_at = 0.0

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.upper

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.upper = protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted_at > 0

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted_at = asyncio.get_running_loop().time()


def lingered(play: Callable[[Stub, Lingering], Any]) -> float:
    """Play a peer; return after how many seconds its connection was dropped, 0 for not at all."""

    async def run() -> float:
        stub = Stub()
        begun = asyncio.get_running_loop().time()
        admission, slot = Admission(1), Slot("", stub.abort)
        admission.enter(slot)
        lingering = Lingering(stub, slot, admission)
        await play(stub, lingering)
        lingering.connection_lost(None)
        return stub.aborted_at - begun if stub.aborted_at else 0.0

    return virtual(run())


def test_so_many_bytes_are_dropped_and_one_more_ends_it() -> None:
    async def at_the_limit(_: Stub, lingering: Lingering) -> None:
        for _part in range(64):
            lingering.data_received(bytes(LINGER_BYTES_MAX // 64))

    async def beyond(stub: Stub, lingering: Lingering) -> None:
        await at_the_limit(stub, lingering)
        await lapse(0.25)
        assert not stub.aborted_at
        lingering.data_received(b"x")

    assert lingered(at_the_limit) == 0
    assert lingered(beyond) == 0.25


def test_all_of_them_are_read_in_turn() -> None:
    async def play(stub: Stub, lingering: Lingering) -> None:
        assert stub.is_reading()
        for _others in range(9):
            lingering.admission.lingering[Slot("", list)] = None
        lingering.data_received(b"x")
        assert not stub.is_reading()
        await lapse(LINGER_READ_MS * 9.9 / 1000)
        assert not stub.is_reading()
        await lapse(LINGER_READ_MS * 0.2 / 1000)
        assert stub.is_reading()
        # The next one may have a lot to read already, and waits for its turn from the start.
        Lingering(next_one := Stub(), Slot("", list), lingering.admission)
        assert not next_one.is_reading()
        await lapse(LINGER_READ_MS * 11.1 / 1000)
        assert next_one.is_reading()
        next_one.abort()

    assert lingered(play) == 0


def test_a_peer_that_does_nothing_is_dropped_soon() -> None:
    async def play(stub: Stub, _: Lingering) -> None:
        await lapse(LINGER_IDLE_SECONDS_MAX + 1)
        assert stub.ended

    assert lingered(play) == LINGER_IDLE_SECONDS_MAX


def test_a_peer_that_does_not_read_is_dropped_too() -> None:
    async def play(stub: Stub, _: Lingering) -> None:
        stub.unsent = 1
        await lapse(2 * LINGER_IDLE_SECONDS_MAX + 1)

    assert lingered(play) == 2 * LINGER_IDLE_SECONDS_MAX


@pytest.mark.parametrize("reads", [False, True])
def test_a_peer_that_goes_on_is_dropped_in_the_end(reads: bool) -> None:
    async def play(stub: Stub, lingering: Lingering) -> None:
        for second in range(LINGER_SECONDS_MAX + 10):
            if reads:
                stub.unsent = 1000 - second
            else:
                lingering.data_received(b"x")
            await lapse(1)

    assert lingered(play) == LINGER_SECONDS_MAX


def test_a_large_body_is_sent_from_its_own_memory() -> None:
    async def waits_in(body: bytes) -> int:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

        class Upper(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport)

        def accept() -> asyncio.Protocol:
            return LingeringAccept(Upper(), Slot("", lambda: None), Admission(1))

        server = await loop.create_server(accept, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            transport = cast(asyncio.Transport, await accepted)
            references = sys.getrefcount(body)
            # The peer reads nothing, so most of the body waits: itself, or a copy of it.
            transport.writelines([b"head", body])
            added = sys.getrefcount(body) - references
            transport.abort()
        server.close()
        return added

    assert uvloop.run(waits_in(bytes(24 * 1024 * 1024))) > 0
