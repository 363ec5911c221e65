"""What one HTTP connection may cost: how long it says nothing, how long it reads nothing."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from leveret.app.parts import SystemClock
from leveret.clock import Clock
from leveret.management.connections.connection import HttpConnection, HttpConnections
from leveret.server.acceptor import Acceptor
from leveret.session.admission import Admission
from support.node.virtual_loop import LoopClock, dribble, run

#: What no test waits for.
LONG = 600.0


async def _hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(100_000))


@web.middleware
async def _told(request: web.Request, handler: Handler) -> web.StreamResponse:
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    connection.begun()
    connection.recognised()
    try:
        return await handler(request)
    finally:
        connection.ended()


@contextlib.asynccontextmanager
async def listening(
    connections_max: int = 100,
    idle_seconds: float = LONG,
    stall_seconds: float = LONG,
    head_seconds: float = LONG,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[int, HttpConnections]]:
    """Listen on a free port with these limits."""
    app = web.Application(middlewares=[_told])
    app.add_routes([web.get("/", _hello), web.get("/endless", _endless)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    connections = HttpConnections(
        runner.server,
        Admission(connections_max),
        clock or SystemClock(),
        idle_seconds,
        stall_seconds,
        head_seconds,
    )
    sock = socket.create_server(("127.0.0.1", 0))
    acceptor = Acceptor(sock, connections.admission, connections.make, lambda *_: None)
    try:
        yield sock.getsockname()[1], connections
    finally:
        acceptor.close()
        await runner.cleanup()


async def dialled(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what comes before the broker ends a connection."""
    async with asyncio.timeout(120):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def test_who_says_nothing_is_cut_off() -> None:
    async def run() -> None:
        async with listening(idle_seconds=0.05) as (port, connections):
            for said in (b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\nX-Sl"):
                reader, writer = await dialled(port)
                writer.write(said)
                assert await ended(reader) == b""
                writer.close()
            assert not connections.admission.slots

    asyncio.run(run())


@pytest.mark.parametrize(
    ("idle", "head"), [(0.2, LONG), (LONG, 0.2)], ids=["a-request", "its-head"]
)
def test_who_trickles_is_cut_off_too(idle: float, head: float) -> None:
    """Bytes that make no whole request are no life."""

    async def run() -> None:
        async with listening(idle_seconds=idle, head_seconds=head) as (port, _):
            reader, writer = await dialled(port)
            ending = asyncio.ensure_future(ended(reader))
            sent = 0
            while not ending.done():
                with contextlib.suppress(ConnectionError):
                    writer.write(b"GET / HTTP/1.1\r\nX: "[sent : sent + 1] or b"y")
                    await writer.drain()
                sent += 1
                await asyncio.wait([ending], timeout=0.01)
            assert sent > 0
            assert ending.result() == b""
            writer.close()

    asyncio.run(run())


def test_who_dribbles_the_first_head_is_cut_off_within_its_limit() -> None:
    async def work() -> None:
        async with listening(head_seconds=10, clock=LoopClock()) as (port, _):
            cut = await dribble(port, b"GET / HTTP/1.1\r\nX-A: " + b"a" * 1000)
            # Before the limit, so that its peer sees it in time.
            assert 9 < cut < 9.6

    run(work())


def test_a_connection_that_asks_now_and_then_lives() -> None:
    async def run() -> None:
        async with listening(idle_seconds=1.5) as (port, connections):
            reader, writer = await dialled(port)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            answers = 0
            while loop.time() - begun < 2.0:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await reader.readuntil(b"hello")
                answers += 1
            assert answers > 3
            assert len(connections.admission.slots) == 1
            assert await ended(reader) == b""
            writer.close()

    asyncio.run(run())


def test_who_reads_nothing_is_cut_off() -> None:
    """By a reset, so that the kernel keeps nothing for him either."""

    async def run() -> None:
        async with listening(stall_seconds=0.1) as (port, connections):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
                poll = select.poll()
                poll.register(sock, select.POLLHUP | select.POLLERR)
                [(_, happened)] = await asyncio.to_thread(poll.poll, 30_000)
                assert happened & select.POLLERR
            assert not connections.admission.slots

    asyncio.run(run())


def test_who_reads_is_served_however_long_it_takes() -> None:
    async def run() -> None:
        async with listening(idle_seconds=1.5, stall_seconds=1.5) as (port, _):
            reader, writer = await dialled(port)
            writer.write(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
            loop = asyncio.get_running_loop()
            begun = loop.time()
            while loop.time() - begun < 2.0:
                assert await reader.read(1_000_000)
            writer.close()

    asyncio.run(run())


def test_one_connection_too_many_takes_the_place_of_another() -> None:
    """Of the one that has been idle for the longest."""

    async def run() -> None:
        async with listening(connections_max=2) as (port, connections):
            kept = [await dialled(port) for _ in range(2)]
            for reader, writer in kept[::-1]:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await reader.readuntil(b"hello")
            reader, writer = await dialled(port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await ended(reader)).endswith(b"hello")
            assert await ended(kept[1][0]) == b""
            kept[0][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await kept[0][0].readuntil(b"hello")
            assert connections.admission.expelled == 1
            for _, one in [*kept, (reader, writer)]:
                one.close()
                with contextlib.suppress(ConnectionError):
                    await one.wait_closed()

    asyncio.run(run())
