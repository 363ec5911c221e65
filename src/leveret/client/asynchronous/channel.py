"""A channel in asyncio: every AMQP operation as a coroutine; acks and windowed publishes as calls.

Invariant: an ended channel raises what ended it from every later call.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, TypeVar

from leveret.client import requests
from leveret.client.asynchronous.calls import Call, Waiting
from leveret.client.asynchronous.consumer import Consumer
from leveret.client.errors import Closed
from leveret.client.shell_channel import ShellChannel, log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.asynchronous.connection import Connection
    from leveret.client.asynchronous.consumer import Callback
    from leveret.client.events import ChannelEnded, Settled
    from leveret.client.message import Message
    from leveret.client.requests import DeclareOk, Request
    from leveret.client.shell_channel import Body
    from leveret.wire.properties import BasicProperties

T = TypeVar("T")


class Channel(ShellChannel):
    """One channel; made by `Connection.channel`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._consumers: dict[str, Consumer] = {}
        self._flow_active = True
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

    async def call(self, request: Request[T], *, consumer: Consumer | None = None) -> T:
        """Send a request and return its result.

        Raises: the channel's error; ValueError when an argument cannot be written.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self.session.request(request.method, Call(request, future, consumer))
        self._wrote()
        return await future

    # -- queue and exchange ------------------------------------------------------------------------

    async def queue_declare(
        self,
        queue: str = "",
        *,
        passive: bool = False,
        durable: bool | None = None,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> DeclareOk:
        """Create a queue, or with `passive` check that it is there.

        It is durable unless it is exclusive, or `durable` says otherwise.

        Raises: NotFound (404), ResourceLocked (405), PreconditionFailed (406), AccessRefused (403).
        """
        request = requests.queue_declare(queue, passive, durable, exclusive, auto_delete, arguments)
        return await self.call(request)

    async def queue_bind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Bind a queue to an exchange.  Raises: NotFound (404), AccessRefused (403)."""
        await self.call(requests.queue_bind(queue, exchange, binding_key, arguments))

    async def queue_unbind(
        self,
        queue: str,
        exchange: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Remove a binding.  Raises: NotFound (404)."""
        await self.call(requests.queue_unbind(queue, exchange, binding_key, arguments))

    async def queue_purge(self, queue: str) -> int:
        """Drop a queue's ready messages; return how many.  Raises: NotFound (404)."""
        return await self.call(requests.queue_purge(queue))

    async def queue_delete(
        self, queue: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Delete a queue; return how many messages went.  Raises: PreconditionFailed (406)."""
        return await self.call(requests.queue_delete(queue, if_unused, if_empty))

    async def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        *,
        passive: bool = False,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Create an exchange, or with `passive` check that it is there.

        Raises: NotFound (404), PreconditionFailed (406), AccessRefused (403).
        """
        request = requests.exchange_declare(
            exchange, exchange_type, passive, durable, auto_delete, internal, arguments
        )
        await self.call(request)

    async def exchange_delete(self, exchange: str, *, if_unused: bool = False) -> None:
        """Delete an exchange.  Raises: PreconditionFailed (406), AccessRefused (403)."""
        await self.call(requests.exchange_delete(exchange, if_unused))

    async def exchange_bind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Bind exchange `destination` to exchange `source`.  Raises: NotFound (404)."""
        await self.call(requests.exchange_bind(destination, source, binding_key, arguments))

    async def exchange_unbind(
        self,
        destination: str,
        source: str,
        binding_key: str = "",
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        """Remove such a binding.  Raises: NotFound (404)."""
        await self.call(requests.exchange_unbind(destination, source, binding_key, arguments))

    # -- publishing --------------------------------------------------------------------------------

    async def confirm_select(self) -> None:
        """Have each publish from here on confirmed.  Raises: PreconditionFailed (406) after tx."""
        await self.call(requests.confirm_select())

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
        confirms = self.session.confirms
        if confirms is None:
            raise ValueError("the channel is not in confirm mode")
        last = confirms.last
        while not confirms.settled_to(last):
            self.session.check_open()
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._confirm_waiters.append(waiter)
            await waiter
        if confirms.lost:
            self.session.check_open()
        failure = confirms.take_failure()
        if failure is not None:
            raise failure

    async def tx_select(self) -> None:
        """Make the channel transactional.  Raises: PreconditionFailed (406) in confirm mode."""
        await self.call(requests.tx_select())

    async def tx_commit(self) -> None:
        """Do what was published and acked since the last commit.  Raises: PreconditionFailed."""
        await self.call(requests.tx_commit())

    async def tx_rollback(self) -> None:
        """Forget what was published and acked.  Raises: PreconditionFailed (406) without tx."""
        await self.call(requests.tx_rollback())

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
        request = requests.basic_consume(queue, consumer_tag, no_ack, exclusive, arguments)
        return Consumer(self, request, callback, no_ack)

    async def get(self, queue: str, *, no_ack: bool = False) -> Message | None:
        """Return one message, or None when the queue is empty.  Raises: NotFound (404)."""
        return await self.call(requests.basic_get(queue, no_ack))

    async def qos(
        self, prefetch_count: int = 0, *, prefetch_size: int = 0, global_: bool = False
    ) -> None:
        """Limit what is delivered before it is acked; 0 is no limit.

        It holds for consumers that start later, with `global_` for the whole channel.
        """
        await self.call(requests.basic_qos(prefetch_count, prefetch_size, global_))

    async def recover(self, *, requeue: bool = True) -> None:
        """Have this channel's unacked messages redelivered."""
        await self.call(requests.basic_recover(requeue))

    # -- what the connection reports ---------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Route messages with the consumer's tag to it."""
        self._consumers[consumer.consumer_tag] = consumer

    def remove_consumer(self, consumer: Consumer) -> None:
        """Route nothing more to the consumer."""
        self._consumers.pop(consumer.consumer_tag, None)

    def hold(self, size: int) -> None:
        """Count bytes of messages that came (or were handed out: negative)."""
        self.connection.hold(size)

    def delivered(self, message: Message) -> None:
        """Take a delivery."""
        consumer = self._consumers.get(message.consumer_tag)
        if consumer is None:
            log.debug("%r came for no consumer", message)
        else:
            consumer.push(message)

    def consumer_cancelled(self, consumer_tag: str) -> None:
        """Take the broker's basic.cancel."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is not None:
            consumer.cancelled()

    def flow_changed(self, active: bool) -> None:
        """Take channel.flow: publishes wait while it is not active."""
        self._flow_active = active
        self.connection.wake()

    @property
    def flow_active(self) -> bool:
        """Whether the broker takes publishes on this channel."""
        return self._flow_active

    def settled(self, event: Settled) -> None:
        """Take confirms."""
        for token, failure in event.outcomes:
            token.end(failure)
        self._wake_confirm_waiters()

    def ended(self, event: ChannelEnded) -> None:
        """Take the end of the channel."""
        error = event.error or Closed(f"channel {self.number} was closed")
        for token in event.tokens:
            token.end(error)
        consumers = list(self._consumers.values())
        self._consumers.clear()
        for consumer in consumers:
            consumer.ended(event.error)
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
