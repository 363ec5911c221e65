"""The requests of a blocking connection, on a channel of their own with direct reply-to.

Invariant: a reply to an earlier request, which came too late, is dropped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leveret.client.shell.rpc import REPLIES, no_reply, of_request

if TYPE_CHECKING:
    from leveret.client.blocking.channel import Channel
    from leveret.client.blocking.connection import Connection
    from leveret.client.blocking.consumer import Consumer
    from leveret.client.message import Message
    from leveret.client.options import PublishArguments
    from leveret.client.shell.channel import Body


class Requester:
    """Publishes requests and waits for their replies, one at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._opened: tuple[Channel, Consumer] | None = None

    def request(
        self,
        body: Body,
        exchange: str,
        routing_key: str,
        timeout: float | None,
        options: PublishArguments,
    ) -> Message:
        """Publish a request and return its reply.  Raises: as `Connection.request`."""
        correlation_id = of_request(options, timeout)
        channel, replies = self._open()
        channel.publish(body, exchange, routing_key, mandatory=True, persistent=False, **options)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            replies.inactivity_timeout = left
            reply = next(replies, None)
            if reply is None:
                raise no_reply(exchange, routing_key, timeout)
            if reply.properties.correlation_id == correlation_id:
                return reply

    def _open(self) -> tuple[Channel, Consumer]:
        """Return the channel and the consumer of its replies; open them if necessary."""
        self._connection.wait_until_recovered()
        if self._opened is not None and self._opened[0].is_open:
            return self._opened
        channel = self._connection.channel()
        channel.confirm_select()
        self._opened = channel, channel.consume(REPLIES, no_ack=True)
        return self._opened
