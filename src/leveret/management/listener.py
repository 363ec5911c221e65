"""Serving the HTTP API on its Unix socket, loaded when somebody first connects.

A web framework costs 0.2 s of start and 13 MB of memory, which a broker that nobody asks should
not pay.  So the socket listens from the start, and the first connection waits in its backlog while
the framework is loaded in a thread and set to accept on the same socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.management.operator import Operator
from leveret.management.unix_socket import listen

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from leveret.broker.broker import Broker

#: Takes a level and a text.
Log = Callable[[str, str], None]


class UnixListener:
    """The HTTP API of one broker on one Unix socket; for the loop that the broker runs in."""

    def __init__(self, path: Path, broker: Broker, operator: Operator, log: Log) -> None:
        self._path = path
        self._broker = broker
        self._operator = operator
        self._log = log
        self._socket: socket.socket | None = None
        self._loading: asyncio.Task[None] | None = None
        self._runner: AppRunner | None = None
        self._server: asyncio.AbstractServer | None = None

    def start(self) -> None:
        """Listen.  Raises: OSError."""
        self._loop = asyncio.get_running_loop()
        self._socket = listen(self._path)
        self._loop.add_reader(self._socket, self._first_connection, self._socket)

    def _first_connection(self, sock: socket.socket) -> None:
        """Begin to load; the connection is accepted by what is loaded."""
        self._loop.remove_reader(sock)
        self._loading = self._loop.create_task(self._load(sock))

    async def _load(self, sock: socket.socket) -> None:
        try:
            make_runner = await self._loop.run_in_executor(None, _import_api)
            self._runner = make_runner(self._broker, self._operator, self._log)
            await self._runner.setup()
            assert self._runner.server is not None
            self._server = await self._loop.create_unix_server(self._runner.server, sock=sock)
        except Exception as error:  # noqa: BLE001 (the broker goes on without its HTTP API)
            self._log("error", f"the HTTP API could not start: {error!r}")

    async def stop(self) -> None:
        """Close the socket and its connections; no effect where it does not listen."""
        if self._socket is None:
            return
        if self._loading is None:
            self._loop.remove_reader(self._socket)
        else:
            self._loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loading
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()
        self._socket = None
        self._path.unlink(missing_ok=True)


def _import_api() -> Callable[[Broker, Operator, Log], AppRunner]:
    """Return what makes the API; in a thread, because the import takes long."""
    from leveret.management.api import make_runner

    return make_runner
