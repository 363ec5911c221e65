"""What a consumer of either shell is apart from waiting: messages that have come, and its end.

Invariants: a message is handed out once and in order; when the consumer ends by an error, messages
that were to be acked are dropped (the broker has them back) and messages of a `no_ack` consumer,
which nobody else has, are still handed out before the error is raised.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.client.errors import ConsumerCancelled
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.message import Message


class ShellConsumer:
    """A consumer of a shell; `hold` counts the bytes of messages that wait to be handed out."""

    def __init__(self, no_ack: bool, hold: Callable[[int], None]) -> None:
        self.consumer_tag = ""
        self._no_ack = no_ack
        self._hold = hold
        self._buffer: deque[Message] = deque()
        self._over = False
        self._error: Exception | None = None

    @property
    def error(self) -> Exception | None:
        """What ended the consumer; None while it runs or when this side ended it."""
        return self._error

    def push(self, message: Message) -> None:
        """Take a message from the broker."""
        self._buffer.append(message)
        self._hold(len(message.body) + CLIENT_MESSAGE_OVERHEAD_BYTES)

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

    def _take(self) -> Message:
        """Return the next message of those that have come."""
        message = self._buffer.popleft()
        self._hold(-len(message.body) - CLIENT_MESSAGE_OVERHEAD_BYTES)
        return message

    def _requeue(self) -> None:
        """Have the broker requeue what has come and was not handed out, if it is to be acked."""
        if not self._no_ack:
            for message in self._buffer:
                message.nack(requeue=True)

    def _drop(self) -> None:
        """Forget what has come and was not handed out."""
        held = sum(len(m.body) + CLIENT_MESSAGE_OVERHEAD_BYTES for m in self._buffer)
        self._buffer.clear()
        self._hold(-held)
