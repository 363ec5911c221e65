"""A blocking consumer: an iterator, or a function that `Connection.process` calls.

Its invariants are those of `ShellConsumer`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from leveret.client.shell import requests
from leveret.client.shell.consumer import ShellConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.blocking.channel import Channel
    from leveret.client.message import Message

    Callback = Callable[[Message], object]


class Consumer(ShellConsumer):
    """One consumer; created and started by `Channel.consume`.

    `with` cancels it at the end of the block, and requeues the messages that the program has not
    taken.  `for` waits for each message, and ends after `inactivity_timeout` seconds without one
    (then it can be resumed), or after `cancel`.

    Raises from the iteration: ConsumerCancelled when the broker has cancelled the consumer; the
    channel's error; ConnectionInUse.
    """

    def __init__(
        self,
        channel: Channel,
        queue: str,
        callback: Callback | None,
        no_ack: bool,
        inactivity_timeout: float | None,
    ) -> None:
        super().__init__(queue, no_ack, channel.connection.hold)
        self.callback = callback
        #: The seconds without a message after which an iteration ends; None: never.
        self.inactivity_timeout = inactivity_timeout
        self._channel = channel
        self._connection = channel.connection
        self._one_thread = channel.connection.one_thread

    def started(self, consumer_tag: str) -> None:
        """Handle basic.consume-ok, before the first message."""
        self.consumer_tag = consumer_tag

    def ended(self, error: Exception | None) -> None:
        """Handle the consumer's end; with a callback, `Connection.process` raises the error."""
        super().ended(error)
        if self.callback is not None and self.error is not None:
            self._channel.connection.failures.append(self.error)

    def cancel(self) -> None:
        """Cancel the consumer; buffered messages can still be iterated.

        Raises: the channel's error when it is closed; ConnectionInUse.
        """
        with self._one_thread:
            if not self._over:
                self._channel.call(requests.cancel(self.consumer_tag))
                self._channel.remove_consumer(self)
                self.ended(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._one_thread:
            if self._channel.is_open:
                self.cancel()
                self._requeue()
            self._drop()

    # -- messages ----------------------------------------------------------------------------------

    def push(self, messages: list[Message], size: int) -> None:
        """Buffer messages from the broker and schedule their callbacks."""
        super().push(messages, size)
        if self.callback is not None:
            self._channel.connection.ready.extend([self._call_back] * len(messages))

    def _call_back(self) -> bool:
        """Call the callback with the next message; return False if no message is buffered."""
        if not self._buffer or self.callback is None:
            return False
        self.callback(self._take())
        return True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """Return the next message, waiting for it up to `inactivity_timeout` seconds.

        Raises: StopIteration after the timeout or `cancel`, ConsumerCancelled, the channel's error;
        ConnectionInUse.
        """
        with self._one_thread:
            if self._buffer and self._connection.acks_wait:
                # Sending may reveal that the connection is lost, which drops buffered messages.
                self._connection.send_old_acks()
            if not self._buffer:
                self._fill()
            return self._take()

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
            self._connection.turn(deadline)
            if deadline is not None and not self._buffer and time.monotonic() >= deadline:
                raise StopIteration
