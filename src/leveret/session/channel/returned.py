"""What stands for the queue of a delivery that was returned to it because its ack was late.

The client may still settle the delivery, once: it knows nothing of the return before it reads the
basic.cancel of its consumer.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.core.turn import Turn
from leveret.broker.queue.consumer import Consumer, Source
from leveret.broker.values.queue_settings import QueueSettings
from leveret.message import Message


@final
class ReturnedSource(Source):
    """A source to which a delivery means nothing any more."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn, "", QueueSettings({}))
        self.deleted = True
        # It has nothing to deliver, and is not to be asked.
        self.scheduled = True

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Nobody knows of it."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """It has no consumers."""

    def dispatch(self, limit: i64) -> bool:
        """Deliver nothing."""
        return False

    def ack(self, sequence: i64, message: Message) -> None:
        """Do nothing: the message is in its queue, or another consumer has it."""

    def reject(self, sequence: i64, message: Message, count: i64) -> None:
        """Do nothing, as for an ack."""

    def requeue(self, sequence: i64, message: Message, count: i64, failed: bool = False) -> None:
        """Do nothing, as for an ack."""
