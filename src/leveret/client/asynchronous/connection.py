"""A connection in asyncio: `connect`, open, close, and the channels of one session.

Invariants: everything runs in the loop that `connect` was called in; the end of the connection ends
every channel and every waiter.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from typing import TYPE_CHECKING, Self, cast

from leveret.client.asynchronous.calls import Call, Waiting
from leveret.client.asynchronous.channel import Channel
from leveret.client.asynchronous.transport_connection import TransportConnection
from leveret.client.shell import requests
from leveret.client.shell.connection import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.uri import Parameters


async def connect(
    uri: str | Parameters = "amqp://",
    *,
    ssl: ssl_module.SSLContext | None = None,
    connection_name: str = "",
    client_properties: Mapping[str, object] | None = None,
) -> Connection:
    """Connect, log in and open the vhost.

    `amqps://` verifies the broker's certificate unless `ssl` says otherwise.

    Raises: ValueError for the URI; OSError, TimeoutError or ConnectionLost when nobody answers as
    a broker; AccessRefusedHard (403) or NotAllowed (530) when the broker refuses.
    """
    parameters, ssl, properties = prepare(uri, ssl, connection_name, client_properties)
    connection = Connection(parameters, properties)
    async with asyncio.timeout(parameters.connection_timeout_ms / 1000):
        await connection.open(ssl)
    return connection


class _Protocol(asyncio.Protocol):
    """Hands what the transport reports to the connection."""

    def __init__(self, connection: TransportConnection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast, not asserted: uvloop's transports do not inherit asyncio's.
        self._connection.made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.transport_lost(exc)

    def pause_writing(self) -> None:
        self._connection.hold_output(True)

    def resume_writing(self) -> None:
        self._connection.hold_output(False)


class Connection(TransportConnection):
    """One connection; made by `connect`."""

    # -- opening and closing -----------------------------------------------------------------------

    async def open(self, ssl: ssl_module.SSLContext | None) -> None:
        """Open the socket and wait for the handshake; called once, by `connect`."""
        host, port = self.parameters.host, self.parameters.port
        try:
            await self._loop.create_connection(lambda: _Protocol(self), host, port, ssl=ssl)
            await self._opened
        except BaseException:
            await self._abort()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, code: int = 200, text: str = "") -> None:
        """Close the connection, with all its channels; does nothing when it has ended."""
        if not self._ended.done():
            self.session.close(code, text)
            self.wrote()
            try:
                async with asyncio.timeout(self.parameters.connection_timeout_ms / 1000):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                await self._abort()
        await asyncio.shield(self._gone)

    async def _abort(self) -> None:
        """Drop the socket and wait until it is gone."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._gone)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended.  Raises: what ended it unless this side closed."""
        await asyncio.shield(self._gone)
        if self.session.error is not None:
            raise self.session.error.with_traceback(None)

    # -- what the application asks for -------------------------------------------------------------

    async def channel(self) -> Channel:
        """Open a channel.  Raises: the connection's error; NoFreeChannel."""
        channel = Channel(self)
        future: asyncio.Future[None] = self._loop.create_future()
        channel.session = self.session.open_channel(channel, Waiting(future))
        self.wrote()
        try:
            await future
        except asyncio.CancelledError:
            channel.session.close()
            self.wrote()
            raise
        return channel

    async def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Hand the broker a fresh token.  Raises: NotAllowed (530)."""
        future: asyncio.Future[None] = self._loop.create_future()
        request = requests.update_secret(new_secret, reason)
        self.session.request(request.method, Call(request, future))
        self.wrote()
        await future
