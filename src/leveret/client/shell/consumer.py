"""The common part of a consumer in either shell: its buffer of messages, and its end.

Invariants: a message is returned once and in order.  When the channel or the connection ends,
buffered messages that need an ack are dropped, because the broker requeues them.  Other messages
are returned before the error is raised: those of a `no_ack` consumer, which exist nowhere else, and
those received before the broker cancelled the consumer, which can still be acked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.client.errors import ConsumerCancelled
from leveret.client.shell.shown import INTERNAL_OF_CONSUMER, shown
from leveret.limits import CLIENT_MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.message import Message

#: Taken messages are subtracted from the buffered bytes in batches of this size.
_TAKEN_BYTES_MAX: Final = 64 * 1024


class ShellConsumer:
    """A consumer of `queue`; `hold` counts the bytes of buffered messages."""

    def __init__(self, queue: str, no_ack: bool, hold: Callable[[int], None]) -> None:
        #: The queue, by the name that was given.
        self.queue = queue
        #: The consumer's tag; empty before the start.
        self.consumer_tag = ""
        self._no_ack = no_ack
        self._hold = hold
        self._buffer: deque[Message] = deque()
        #: The bytes of taken messages that still count as buffered.
        self._taken = 0
        self._over = False
        self._error: Exception | None = None

    def __dir__(self) -> list[str]:
        return shown(super().__dir__(), INTERNAL_OF_CONSUMER)

    def __repr__(self) -> str:
        state = "has ended" if self._over else "runs" if self.consumer_tag else "has not started"
        where = f"{self.consumer_tag!r} of queue {self.queue!r}"
        return f"<Consumer {where} {state}, {len(self._buffer)} messages buffered>"

    @property
    def error(self) -> Exception | None:
        """The error that ended the consumer; None while it runs or if this side ended it."""
        return self._error

    def push(self, messages: list[Message], size: int) -> None:
        """Buffer messages from the broker; `size` is their size with overhead."""
        self._buffer.extend(messages)
        self._hold(size)

    def ended(self, error: Exception | None) -> None:
        """Handle the end of the consumer, its channel or its connection."""
        if self._over:
            return
        self._over = True
        self._error = error
        if error is not None and not self._no_ack and not isinstance(error, ConsumerCancelled):
            self._drop()

    def suspended(self) -> None:
        """Drop messages that the broker will redeliver after the loss of the connection."""
        if not self._no_ack:
            self._drop()

    def cancelled(self) -> None:
        """Handle the broker's basic.cancel."""
        self.ended(ConsumerCancelled(self.consumer_tag))

    def _take(self) -> Message:
        """Return the next buffered message."""
        message = self._buffer.popleft()
        self._taken += len(message.body) + CLIENT_MESSAGE_OVERHEAD_BYTES
        # Counting in batches costs less.
        if self._taken >= _TAKEN_BYTES_MAX or not self._buffer:
            self._release()
        return message

    def _release(self) -> None:
        """Subtract the taken messages from the buffered bytes."""
        taken, self._taken = self._taken, 0
        self._hold(-taken)

    def _requeue(self) -> None:
        """Requeue buffered messages, unless they need no ack."""
        if not self._no_ack:
            for message in self._buffer:
                message.nack(requeue=True)

    def _drop(self) -> None:
        """Drop buffered messages."""
        held = sum(len(m.body) + CLIENT_MESSAGE_OVERHEAD_BYTES for m in self._buffer)
        self._buffer.clear()
        self._taken += held
        self._release()
