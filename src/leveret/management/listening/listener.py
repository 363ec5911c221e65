"""HTTP listeners, which load the web framework at the first connection.

The framework costs 0.2 s of start-up and 13 MB of memory, which a broker without HTTP clients
should not pay.  So the sockets listen from the start, and the first connection waits in the backlog
while a thread loads the framework.  `HttpListener` is the base of all listeners, and
`UnixListener` serves the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.management.chunk_source import ChunkSource
from leveret.management.listening.doors import Accept, Doors, Make
from leveret.management.operator import Operator
from leveret.management.unix_socket import listen
from leveret.session.admission import Admission

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage
    from aiohttp.web import AppRunner, BaseRequest, RequestHandler, Server

    from leveret.broker.broker import Broker

#: Takes a level and the text of a message.
Log = Callable[[str, str], None]

#: The prefixes of paths whose trailing slash is removed.
_ROUTES: Final = ("/api/", "/metrics/")


class HttpListener(ABC):
    """The HTTP API of one broker on one or more sockets; created in the broker's loop."""

    #: Whether connections are authenticated from the start.
    knows_all: bool

    def __init__(
        self,
        broker: Broker,
        operator: Operator,
        chunks: ChunkSource,
        doors: Doors,
        admission: Admission,
        log: Log,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._doors = doors
        self.admission = admission
        self._broker = broker
        self._operator = operator
        self._chunks = chunks
        self._log = log
        self._sockets: list[socket.socket] = []
        self._loading: asyncio.Task[None] | None = None
        self._runner: AppRunner | None = None
        self._closes: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to listen.  Raises: OSError."""
        self._sockets = self._listen()
        for sock in self._sockets:
            self._loop.add_reader(sock, self._first_connection)

    @abstractmethod
    def _listen(self) -> list[socket.socket]:
        """Return listening sockets.  Raises: OSError."""

    def _accept_of(self, sock: socket.socket) -> Accept:
        """Return the function that accepts connections on one of the sockets."""
        return self._doors.accept

    @abstractmethod
    def _load(self) -> AppRunner:
        """Load the framework and return the runner; called in a thread, because it is slow."""

    @abstractmethod
    def _make(self, runner: AppRunner) -> Make:
        """Return the factory of connections for `runner`, which is set up."""

    def _first_connection(self) -> None:
        """Load the framework, then accept the connections in the backlog."""
        for sock in self._sockets:
            self._loop.remove_reader(sock)
        if self._loading is None:
            self._loading = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            runner = self._runner = await self._loop.run_in_executor(None, self._load)
            await runner.setup()
            assert runner.server is not None
            _leave_out_slash(runner.server)
            make = self._make(runner)
            for sock in self._sockets:
                accept = self._accept_of(sock)
                close = accept(sock, self.admission, make, self.knows_all)
                self._closes.append(close)
        except Exception as error:  # noqa: BLE001 (the broker goes on without its HTTP API)
            self._log("error", f"the HTTP API could not start: {error!r}")

    async def stop(self) -> None:
        """Close the sockets and their connections; no effect on a listener that is not started."""
        if not self._sockets:
            return
        if self._loading is None:
            for sock in self._sockets:
                self._loop.remove_reader(sock)
        else:
            self._loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loading
        for close in self._closes:
            close()
        if self._runner is not None:
            await self._runner.cleanup()
        for sock in self._sockets:
            sock.close()
        self._sockets = []


class UnixListener(HttpListener):
    """The operator's HTTP API, on one Unix socket.

    It has slots of its own, so that the operator can always connect.
    """

    knows_all = True

    def __init__(
        self,
        path: Path,
        broker: Broker,
        operator: Operator,
        chunks: ChunkSource,
        doors: Doors,
        log: Log,
    ) -> None:
        admission = Admission(doors.operator_places)
        super().__init__(broker, operator, chunks, doors, admission, log)
        self._path = path

    def _listen(self) -> list[socket.socket]:
        return [listen(self._path)]

    def _load(self) -> AppRunner:
        from leveret.management.api import make_runner

        return make_runner(self._broker, self._operator, self._chunks, self._doors.clock, self._log)

    def _make(self, runner: AppRunner) -> Make:
        from leveret.management.connections.connection import OperatorConnections

        assert runner.server is not None
        return OperatorConnections(runner.server, self.admission, self._log).make

    async def stop(self) -> None:
        """Close the socket and its connections, and remove its file if it was listening."""
        listened = bool(self._sockets)
        await super().stop()
        if listened:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                # The next start replaces it.
                self._log("warning", f"the socket of the HTTP API cannot be removed: {error}")


def _leave_out_slash(server: Server) -> None:
    """Make `server`, which is set up, remove a trailing slash from the paths of its requests.

    Some clients append a slash to the path of a list.  As in RabbitMQ, `/api/queues/` is equivalent
    to `/api/queues`.  Only one slash is removed, since a second one would follow an empty name.
    Paths of the page's files are not changed.
    """
    make = server.request_factory

    def made(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> BaseRequest:
        path = message.url.raw_path
        if path.endswith("/") and path.startswith(_ROUTES):
            url = message.url.with_path(path[:-1], encoded=True, keep_query=True)
            message = message._replace(url=url)
        return make(message, payload, protocol, writer, task)

    server.request_factory = made
