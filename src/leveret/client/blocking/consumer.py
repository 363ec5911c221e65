"""A consumer of the blocking shell: an iterator, or a function that `Connection.process` calls.

Invariants as in asyncio: a message is handed out once and in order; when the consumer ends by an
error, messages that were to be acked are dropped and those of a `no_ack` consumer still handed out.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Self

from leveret.client import requests
from leveret.client.errors import ConsumerCancelled
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.blocking.channel import Channel
    from leveret.client.message import Message

    Callback = Callable[[Message], object]


class Consumer:
    """One consumer; made and started by `Channel.consume`."""

    def __init__(
        self,
        channel: Channel,
        callback: Callback | None,
        no_ack: bool,
        inactivity_timeout: float | None,
    ) -> None:
        self.consumer_tag = ""
        self.callback = callback
        self.inactivity_timeout = inactivity_timeout
        self._channel = channel
        self._no_ack = no_ack
        self._buffer: deque[Message] = deque()
        self._over = False
        self._error: Exception | None = None

    def started(self, consumer_tag: str) -> None:
        """Take basic.consume-ok, before the first message."""
        self.consumer_tag = consumer_tag

    def ended(self, error: Exception | None) -> None:
        """Take the end: of the channel, of the connection, or by the broker's cancel."""
        if self._over:
            return
        self._over = True
        self._error = error
        if error is not None and not self._no_ack:
            self._drop()

    def cancelled(self) -> None:
        """Take the broker's basic.cancel."""
        self.ended(ConsumerCancelled(self.consumer_tag))

    @property
    def error(self) -> Exception | None:
        """What ended the consumer; None while it runs or when this side ended it."""
        return self._error

    def cancel(self) -> None:
        """End the consumer; messages that have come can still be iterated.

        Raises: the channel's error when it has ended.
        """
        if not self._over:
            self._channel.call(requests.basic_cancel(self.consumer_tag))
            self._channel.remove_consumer(self)
            self.ended(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._channel.is_open:
            self.cancel()
            if not self._no_ack:
                for message in self._buffer:
                    message.nack(requeue=True)
        self._drop()

    # -- messages ----------------------------------------------------------------------------------

    def push(self, message: Message) -> None:
        """Take a message from the broker."""
        self._buffer.append(message)

    def pop(self) -> Message | None:
        """Return the next message that has come, or None."""
        if not self._buffer:
            return None
        message = self._buffer.popleft()
        self._channel.hold(-len(message.body) - CLIENT_MESSAGE_OVERHEAD_BYTES)
        return message

    def _drop(self) -> None:
        """Forget what has come and was not handed out."""
        held = sum(len(m.body) + CLIENT_MESSAGE_OVERHEAD_BYTES for m in self._buffer)
        self._buffer.clear()
        self._channel.hold(-held)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Return the next message, waiting for it up to `inactivity_timeout` seconds.

        Raises: StopIteration after the timeout or `cancel`, ConsumerCancelled, the channel's error.
        """
        while not self._buffer:
            with self._channel.connection.one_thread:
                self._fill()
        message = self._buffer.popleft()
        self._channel.hold(-len(message.body) - CLIENT_MESSAGE_OVERHEAD_BYTES)
        return message

    def _fill(self) -> None:
        """Wait for a message."""
        deadline: float | None = None
        if self.inactivity_timeout is not None:
            deadline = time.monotonic() + self.inactivity_timeout
        while not self._buffer:
            if self._over:
                if self._error is None:
                    raise StopIteration
                raise self._error.with_traceback(None)
            self._channel.turn(deadline)
            if deadline is not None and not self._buffer and time.monotonic() >= deadline:
                raise StopIteration
