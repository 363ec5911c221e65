"""The HTTP API of a broker's users, in memory but for its sockets, all in one event loop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from leveret.clock import Clock
from leveret.management.api import make_users_runner
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.connection import HttpConnections
from leveret.management.gate import Gate
from leveret.management.keeper import GateKeeper
from leveret.management.metrics.totals import Walks
from leveret.management.operator import Operator
from leveret.management.requests.slices import Slices
from leveret.management.sampling.sampler import Sampler
from leveret.server.acceptor import Acceptor
from leveret.server.closing.lingering import end_lingering
from leveret.session.admission import Admission
from support.node.core import Node

#: A time that no test waits for.
LONG: Final = 600.0

#: More iterations of the loop than the start of a request ever takes.
_TURNS_MAX: Final = 1_000_000

#: The maximum of sent but unread bytes in the kernel's buffers of both sides.
KERNEL_BYTES_MAX: Final = 16 * 1024 * 1024

RIGHT: Final = "Authorization: Basic " + base64.b64encode(b"guest:guest").decode()
WRONG: Final = "Authorization: Basic " + base64.b64encode(b"guest:wrong").decode()


def head(*fields: str, method: str = "GET", path: str = "/api/streams/%2F") -> bytes:
    """Return the head of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


class Api80:
    """The API of a broker's users, in memory but for its sockets."""

    def __init__(self, port: int, connections: HttpConnections, node: Node, slices: Slices) -> None:
        self.port = port
        self.slices = slices
        self.node = node
        self.connections = connections
        self.admission = connections.admission
        self.judged = 0
        self.heard = asyncio.Event()

    def watchers(self, stream: str) -> int:
        """The number of requests that wait for messages of a stream."""
        return len(self.node.stream(stream).watchers)

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """Return the answer to one request on a new connection, which then ends."""
        reader, writer = await self.dial()
        try:
            writer.write(request)
            return await ended(reader)
        finally:
            writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes received before the broker ends a connection."""
    async with asyncio.timeout(60):
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(65_536):
                parts.append(part)
        return b"".join(parts)


@contextlib.asynccontextmanager
async def listening(
    places: int = 100,
    *,
    idle_seconds: float = LONG,
    clock: Clock | None = None,
    requests_per_user: int = 100,
    api_requests_per_user: int = 100,
) -> AsyncIterator[Api80]:
    """Listen with a limit of connections."""
    node = Node()

    async def nothing(*_: object) -> bytes:
        return b""

    async def judged(user: str, password: bytes, _address: str) -> bool:
        served.judged += 1
        served.heard.set()
        return node.broker.users.verify(user, password)

    def ignored(*_: str) -> None:
        return

    sampler = Sampler(Walks(node.broker, node.clock))
    hands: Any = (node.now, nothing, nothing, nothing, node.now, repr, sampler)
    keeper = GateKeeper(judged, lambda _: True, (), 0)
    clock = clock or node.clock
    gate = Gate(node.broker, keeper, ignored, clock, requests_per_user, api_requests_per_user)
    operator = Operator(*hands)
    chunks = ChunkSource(nothing)
    runner = make_users_runner(node.broker, operator, chunks, gate, clock, ignored)
    await runner.setup()
    assert runner.server is not None
    connections = HttpConnections(
        runner.server, Admission(places), clock, idle_seconds=idle_seconds
    )
    listener = socket.create_server(("127.0.0.1", 0))
    acceptor = Acceptor(listener, connections.admission, connections.make, ignored)
    served = Api80(listener.getsockname()[1], connections, node, operator.slices)
    try:
        yield served
    finally:
        acceptor.close()
        await runner.cleanup()
        await end_lingering(0, connections.admission)


async def until(is_so: Callable[[], bool]) -> None:
    """Run the loop until `is_so`."""
    for _ in range(_TURNS_MAX):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def run(
    scene: Callable[[Api80], Coroutine[Any, Any, None]],
    places: int = 100,
    requests_per_user: int = 100,
    api_requests_per_user: int = 100,
) -> None:
    """Run a scene."""

    async def play() -> None:
        async with listening(
            places,
            requests_per_user=requests_per_user,
            api_requests_per_user=api_requests_per_user,
        ) as api:
            await scene(api)

    asyncio.run(play())
