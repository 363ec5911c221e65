"""What a consumer of either shell is apart from waiting: messages that have come, and its end.

Invariants: a message is handed out once and in order.  When the channel or the connection ends,
the messages that were to be acked are dropped, because the broker has them back.  Other messages
are handed out before the error is raised: those of a `no_ack` consumer, which nobody else has, and
those that came before the broker cancelled the consumer, which can still be acked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.client.errors import ConsumerCancelled
from leveret.client.shell.shown import INTERNAL_OF_CONSUMER, shown
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES, CLIENT_TAKEN_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.message import Message


class ShellConsumer:
    """A consumer of `queue`; `hold` counts the bytes of messages that wait to be handed out."""

    def __init__(self, queue: str, no_ack: bool, hold: Callable[[int], None]) -> None:
        self.queue = queue
        self.consumer_tag = ""
        self._no_ack = no_ack
        self._hold = hold
        self._buffer: deque[Message] = deque()
        #: The bytes of messages that were handed out and count as waiting still.
        self._taken = 0
        self._over = False
        self._error: Exception | None = None

    def __dir__(self) -> list[str]:
        return shown(super().__dir__(), INTERNAL_OF_CONSUMER)

    @property
    def error(self) -> Exception | None:
        """What ended the consumer; None while it runs or when this side ended it."""
        return self._error

    def push(self, messages: list[Message], size: int) -> None:
        """Take messages from the broker; `size` is what they count as waiting, in bytes."""
        self._buffer.extend(messages)
        self._hold(size)

    def ended(self, error: Exception | None) -> None:
        """Take the end: of the channel, of the connection, or by the broker's cancel."""
        if self._over:
            return
        self._over = True
        self._error = error
        if error is not None and not self._no_ack and not isinstance(error, ConsumerCancelled):
            self._drop()

    def suspended(self) -> None:
        """Take the loss of the connection: the broker delivers again what was to be acked."""
        if not self._no_ack:
            self._drop()

    def cancelled(self) -> None:
        """Take the broker's basic.cancel."""
        self.ended(ConsumerCancelled(self.consumer_tag))

    def _take(self) -> Message:
        """Return the next message of those that have come."""
        message = self._buffer.popleft()
        self._taken += len(message.body) + CLIENT_MESSAGE_OVERHEAD_BYTES
        # Many are counted at once, which costs less.
        if self._taken >= CLIENT_TAKEN_BYTES_MAX or not self._buffer:
            self._release()
        return message

    def _release(self) -> None:
        """Count the messages that were handed out no longer."""
        taken, self._taken = self._taken, 0
        self._hold(-taken)

    def _requeue(self) -> None:
        """Have the broker requeue what has come and was not handed out, if it is to be acked."""
        if not self._no_ack:
            for message in self._buffer:
                message.nack(requeue=True)

    def _drop(self) -> None:
        """Forget what has come and was not handed out."""
        held = sum(len(m.body) + CLIENT_MESSAGE_OVERHEAD_BYTES for m in self._buffer)
        self._buffer.clear()
        self._taken += held
        self._release()
