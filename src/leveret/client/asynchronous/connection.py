"""A connection in asyncio and its channels: `connect`, open, close, and every AMQP operation.

Operations are coroutines; acks and windowed publishes are calls.

Both classes are here, as each names the other in its public calls.

Invariants: everything runs in the loop that `connect` was called in; the end of the connection ends
every channel and every waiter; an ended channel raises what ended it from every later call.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from typing import TYPE_CHECKING, Self, cast

from leveret.client.asynchronous.calls import Call, CallingChannel, Waiting, awaited
from leveret.client.asynchronous.consumer import Consumer
from leveret.client.asynchronous.transport_connection import TransportConnection
from leveret.client.shell import requests
from leveret.client.shell.connection import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.asynchronous.consumer import Callback
    from leveret.client.events import ChannelEnded, Settled
    from leveret.client.shell.channel import Body
    from leveret.client.uri import Parameters
    from leveret.wire.properties import BasicProperties


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


class Channel(CallingChannel):
    """One channel; made by `Connection.channel`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._confirm_waiters: list[asyncio.Future[None]] = []
        self._end: asyncio.Future[None] = self._loop.create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, code: int = 200, text: str = "") -> None:
        """Close the channel; its unacked messages go back to their queues."""
        if not self._end.done():
            self.session.close(code, text)
            self._wrote()
            await asyncio.shield(self._end)

    queue_declare = awaited(requests.queue_declare)
    queue_bind = awaited(requests.queue_bind)
    queue_unbind = awaited(requests.queue_unbind)
    queue_purge = awaited(requests.queue_purge)
    queue_delete = awaited(requests.queue_delete)

    exchange_declare = awaited(requests.exchange_declare)
    exchange_delete = awaited(requests.exchange_delete)
    exchange_bind = awaited(requests.exchange_bind)
    exchange_unbind = awaited(requests.exchange_unbind)

    confirm_select = awaited(requests.confirm_select)
    tx_select = awaited(requests.tx_select)
    tx_commit = awaited(requests.tx_commit)
    tx_rollback = awaited(requests.tx_rollback)

    get = awaited(requests.get)
    qos = awaited(requests.qos)
    recover = awaited(requests.recover)

    # -- publishing --------------------------------------------------------------------------------

    async def publish(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        """Publish a message; in confirm mode return when the broker has confirmed it.

        It waits while the broker blocks publishers or does not read.

        Raises: Nacked, Returned; the channel's error; ValueError for what cannot be written.
        """
        if not self._flow_active or self.connection.is_held:
            await self.connection.writable(self)
        if self.session.confirms is None:
            self._put(body, exchange, routing_key, properties, mandatory, None)
            if self.connection.wrote():
                await self.connection.drained()
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._put(body, exchange, routing_key, properties, mandatory, Waiting(future))
        self.connection.wrote()
        await future

    def publish_nowait(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
    ) -> int:
        """Publish and go on; return the sequence in confirm mode, else 0.

        Raises: OutputFull when the broker does not read; else as `publish` without its confirm.
        """
        self.connection.check_output()
        sequence = self._put(body, exchange, routing_key, properties, mandatory, None)
        self.connection.wrote()
        return sequence

    async def wait_for_confirms(self) -> None:
        """Wait until all that was published so far is confirmed.

        Raises: Nacked or Returned for what `publish_nowait` sent; the channel's error; ValueError
        without confirm mode.
        """
        confirms = self._confirms()
        last = confirms.last
        while not confirms.settled_to(last):
            self.session.check_open()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._confirm_waiters.append(waiter)
            await waiter
        self._check_confirms(confirms)

    # -- consuming ---------------------------------------------------------------------------------

    def consume(
        self,
        queue: str,
        callback: Callback | None = None,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> Consumer:
        """Return a consumer to iterate, or to await when it has a callback.

        `async for message in channel.consume(queue)`, or `await channel.consume(queue, callback)`
        with a function or coroutine function of one message.

        Raises when it starts: NotFound (404), AccessRefused (403), ResourceLocked (405).
        """
        request = requests.consume(queue, consumer_tag, no_ack, exclusive, arguments)
        return Consumer(self, self.connection.hold, request, callback, no_ack)

    # -- what the connection reports ---------------------------------------------------------------

    def flow_changed(self, active: bool) -> None:
        """Take channel.flow, and let publishers look again."""
        super().flow_changed(active)
        self.connection.wake()

    def settled(self, event: Settled) -> None:
        """Take confirms, and let those who wait for them look again."""
        super().settled(event)
        self._wake_confirm_waiters()

    def ended(self, event: ChannelEnded) -> None:
        """Take the end of the channel."""
        super().ended(event)
        self._wake_confirm_waiters()
        if not self._end.done():
            self._end.set_result(None)
        self.connection.wake()

    def _wake_confirm_waiters(self) -> None:
        """Let those who wait for confirms look again."""
        waiters, self._confirm_waiters = self._confirm_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _wrote(self) -> None:
        self.connection.wrote()


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
