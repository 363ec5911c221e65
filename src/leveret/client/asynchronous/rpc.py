"""The requests of an asyncio connection, on a channel of their own with direct reply-to.

Any number of tasks may wait for replies; the correlation ID assigns each reply to its request.

Invariant: the end of the channel ends every wait for a reply on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leveret.client.errors import ClientError, Closed
from leveret.client.shell.rpc import REPLIES, no_reply, of_request
from leveret.errors import AmqpError

if TYPE_CHECKING:
    from leveret.client.asynchronous.channel import Channel
    from leveret.client.asynchronous.connection import Connection
    from leveret.client.asynchronous.consumer import Consumer
    from leveret.client.message import Message
    from leveret.client.options import PublishArguments
    from leveret.client.shell.channel import Body


class Requester:
    """Publishes requests and waits for their replies."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._opening = asyncio.Lock()
        self._replies: _Replies | None = None

    async def request(
        self,
        body: Body,
        exchange: str,
        routing_key: str,
        timeout: float | None,  # noqa: ASYNC109  # the request expires with it
        options: PublishArguments,
    ) -> Message:
        """Publish a request and return its reply.  Raises: as `Connection.request`."""
        correlation_id = of_request(options, timeout)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                replies = await self._open()
                reply = replies.expected(correlation_id)
                try:
                    await replies.channel.publish(
                        body, exchange, routing_key, mandatory=True, persistent=False, **options
                    )
                    return await reply
                finally:
                    replies.forget(correlation_id)
        except TimeoutError:
            if not limit.expired():
                raise
            raise no_reply(exchange, routing_key, timeout) from None

    async def _open(self) -> _Replies:
        """Return the replies of the channel; open it if necessary."""
        async with self._opening:
            await self._connection.recovered()
            if self._replies is not None and self._replies.channel.is_open:
                return self._replies
            channel = await self._connection.channel()
            try:
                await channel.confirm_select()
                consumer = await channel.consume(REPLIES, no_ack=True)
            except BaseException:
                # Do not wait for the answer: the time of the request may be over.
                channel.close_session(200, "")
                self._connection.wrote()
                raise
            self._replies = _Replies(channel, consumer)
            return self._replies


class _Replies:
    """The replies to the requests of one channel."""

    def __init__(self, channel: Channel, consumer: Consumer) -> None:
        self.channel = channel
        self._expected: dict[str, asyncio.Future[Message]] = {}
        self._task = asyncio.ensure_future(self._read(consumer))

    def expected(self, correlation_id: str) -> asyncio.Future[Message]:
        """Return the future of the reply with this correlation ID."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._expected[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Drop the reply with this correlation ID if it still comes."""
        del self._expected[correlation_id]

    async def _read(self, consumer: Consumer) -> None:
        """Assign replies to their requests until the channel ends."""
        error: Exception = Closed("the channel of the request was closed")
        try:
            async for reply in consumer:
                future = self._expected.get(reply.properties.correlation_id or "")
                if future is not None and not future.done():
                    future.set_result(reply)
        except (AmqpError, ClientError, OSError) as failure:
            error = failure
        for future in self._expected.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # its task may raise the error of its publish instead
