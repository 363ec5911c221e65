"""An asyncio channel: every AMQP operation.

Most operations are coroutines; acks and `publish_nowait` are plain calls.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from leveret.client.asynchronous.calls import Call, Waiting, awaited
from leveret.client.asynchronous.consumer import Consumer
from leveret.client.asynchronous.one_loop import running_loop
from leveret.client.options import PublishArguments, shows_options, with_options
from leveret.client.shell import requests
from leveret.client.shell.channel import ShellChannel
from leveret.client.shell.rpc import of_reply
from leveret.client.shell.traced import TracedShellChannel, awaited_in_span, in_span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.asynchronous.connection import Connection
    from leveret.client.asynchronous.consumer import Callback
    from leveret.client.asynchronous.one_loop import OneLoop
    from leveret.client.events import ChannelEnded, Settled, Token
    from leveret.client.message import Message
    from leveret.client.shell.channel import Body
    from leveret.wire.properties import BasicProperties

T = TypeVar("T")


class Channel(ShellChannel):
    """One channel; created by `Connection.channel`.

    `async with` closes it.  It belongs to the event loop of its connection, where any number of
    tasks may use it.  After the broker has closed it, every call raises the same error.

    Raises: ConnectionInUse from every call outside that loop.
    """

    def __init__(self, connection: Connection, opening: Token) -> None:
        super().__init__(connection, opening)
        #: The connection of this channel.
        self.connection = connection
        self._guard: OneLoop = connection.one_loop
        self._loop = self._guard.loop
        self._confirm_waiters: list[asyncio.Future[None]] = []
        self._end: asyncio.Future[None] = self._loop.create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, code: int = 200, text: str = "") -> None:
        """Close the channel; its unacked messages are requeued.  Do nothing if it has ended.

        `code` and `text` tell the broker the reason.
        """
        self._guard.check()
        if not self._end.done():
            self.close_session(code, text)
            self._wrote()
            await asyncio.shield(self._end)

    async def ready(self) -> None:
        """Wait for the end of a recovery in progress."""
        if self.connection.is_recovering:
            await self.connection.recovered()

    async def call(self, request: requests.Request[T], *, consumer: Consumer | None = None) -> T:
        """Send a request and return its result.

        Raises: the channel's error; ValueError for an invalid argument; ConnectionInUse.
        """
        self._guard.check()
        await self.ready()
        future: asyncio.Future[T] = self._loop.create_future()
        self.session.request(request.method, Call(request, future, consumer))
        self.connection.wrote(at_once=True)
        return await future

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack one delivery, or with `multiple` all up to it; tag 0 with `multiple` means all.

        `message.ack()` acks one message.  The broker closes the channel for an unknown tag (406).

        Raises: the channel's error when it is closed; DeliveryLost for a delivery of a lost
        connection; ConnectionInUse.
        """
        if running_loop() is not self._loop:  # costs less than entering the guard
            self._guard.check()
        self.session.ack(delivery_tag, multiple)
        self.connection.wrote()

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

    @shows_options(PublishArguments)
    async def publish(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
        persistent: bool = True,
        **options: Unpack[PublishArguments],
    ) -> None:
        """Publish a message; in confirm mode, return when the broker has confirmed it.

        `body` is bytes, a bytearray or a memoryview.  The exchange routes the message by
        `routing_key`; the default exchange "" passes it to the queue of that name.  If no queue
        takes a `mandatory` message, the broker returns it; other messages are dropped then.  A
        `persistent` message survives a restart of the broker in a durable queue.

        The options `headers`, `priority`, `expiration`, `delay` and so on set properties, and take
        precedence over `properties`; times are in seconds.  A delivery mode in the properties takes
        precedence over `persistent`.  `publish` waits while the broker blocks publishers or does
        not read.

        Raises: Nacked, Returned; the channel's error; ValueError for an invalid argument;
        ConnectionInUse.
        """
        if running_loop() is not self._loop:
            self._guard.check()
        if options:
            properties = with_options(properties, options)
        if not self._flow_active or self.connection.is_held:
            await self.connection.writable(self)
        if self.session.confirms is None:
            self._put(body, exchange, routing_key, properties, mandatory, persistent, None)
            if self.connection.wrote(at_once=True):
                await self.connection.drained()
            return
        future: asyncio.Future[None] = self._loop.create_future()
        waiting = Waiting(future)
        self._put(body, exchange, routing_key, properties, mandatory, persistent, waiting)
        self.connection.wrote(at_once=True)
        await future

    @shows_options(PublishArguments)
    def publish_nowait(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
        persistent: bool = True,
        **options: Unpack[PublishArguments],
    ) -> int:
        """Publish without waiting, with the arguments of `publish`.

        Return the message's sequence number on this channel in confirm mode, else 0.
        `wait_for_confirms` waits for the confirms, and raises if a message failed.

        Raises: OutputFull when the broker does not read; else as `publish` outside confirm mode.
        """
        if running_loop() is not self._loop:
            self._guard.check()
        if options:
            properties = with_options(properties, options)
        self.connection.check_output()
        sequence = self._put(body, exchange, routing_key, properties, mandatory, persistent, None)
        self.connection.wrote()
        return sequence

    @shows_options(PublishArguments)
    async def reply(
        self, request: Message, body: Body, **options: Unpack[PublishArguments]
    ) -> None:
        """Publish the reply to a request; do nothing if its sender expects none.

        The reply is transient and has the request's correlation ID.  The options are those of
        `publish`.

        Raises: as `publish`.
        """
        routing_key = of_reply(request, options)
        if routing_key:
            await self.publish(body, routing_key=routing_key, persistent=False, **options)

    async def wait_for_confirms(self) -> None:
        """Wait until every message published so far is confirmed.

        Raises: Nacked or Returned for messages from `publish_nowait`; the channel's error;
        ValueError outside confirm mode.
        """
        self._guard.check()
        confirms = self._confirms()
        last = confirms.last
        while not confirms.settled_to(last):
            if not self.connection.is_recovering:
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
        """Return a consumer to iterate, or to await if it has a callback.

        Use `async for message in channel.consume(queue)`, or `await channel.consume(queue,
        callback)` with a function or coroutine function that takes one message.

        Messages of a consumer with `no_ack` need no ack, and are lost if this program fails.  While
        an `exclusive` consumer runs, the queue has no other.  Without a `consumer_tag`, the broker
        generates one.  `arguments` are those of the broker; `stream_arguments` makes those of a
        stream.

        Raises on start: NotFound (404); AccessRefused (403), also if the queue has an exclusive
        consumer, or has others and this one is exclusive; ResourceLocked (405).
        """
        request = requests.consume(queue, consumer_tag, no_ack, exclusive, arguments)
        handler = self._handler(callback) if callback is not None else None
        hold, one_loop = self.connection.hold, self._guard
        return Consumer(self, hold, one_loop, queue, request, handler, no_ack)

    def _handler(self, callback: Callback) -> Callback:
        """Return the function that a consumer calls for `callback`."""
        return callback

    # -- events of the connection ------------------------------------------------------------------

    def flow_changed(self, active: bool) -> None:
        """Handle channel.flow and wake waiting publishers."""
        super().flow_changed(active)
        self.connection.wake()

    def settled(self, event: Settled) -> None:
        """Handle confirms and wake tasks that wait for them."""
        super().settled(event)
        self._wake_confirm_waiters()

    def ended(self, event: ChannelEnded) -> None:
        """Handle the end of the channel."""
        super().ended(event)
        self._wake_confirm_waiters()
        if not self._end.done():
            self._end.set_result(None)
        self.connection.wake()

    def _wake_confirm_waiters(self) -> None:
        """Wake the tasks that wait for confirms."""
        waiters, self._confirm_waiters = self._confirm_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _wrote(self) -> None:
        self.connection.wrote()


class TracedChannel(TracedShellChannel, Channel):
    """A channel that records spans of its messages; used if `connect` received `tracing`."""

    publish = awaited_in_span(Channel.publish)
    publish_nowait = in_span(Channel.publish_nowait)

    def _handler(self, callback: Callback) -> Callback:
        """Wrap `callback` so that it runs inside a span."""

        async def handle(message: Message) -> None:
            with self._handling(message):
                result = callback(message)
                if inspect.isawaitable(result):
                    await result

        return handle
