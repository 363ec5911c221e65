"""Takes the place of the queue in deliveries that were returned because their acks were late.

The client may still settle such a delivery, once: it does not know of the return until it reads the
basic.cancel of its consumer.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.core.core import Core
from leveret.broker.queue.consumer import Consumer, Source
from leveret.broker.values.queue_settings import QueueSettings


@final
class ReturnedSource(Source):
    """A source that ignores what becomes of its deliveries."""

    def __init__(self, core: Core) -> None:
        super().__init__(core, "", QueueSettings({}))
        self.deleted = True
        # As if it were scheduled already: nothing schedules it again, and an ack, a reject or a
        # requeue of a delivery does nothing.
        self.scheduled = True

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Do nothing: no client can name it."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """Do nothing: it has no consumers."""

    def dispatch(self, limit: i64) -> bool:
        """Deliver nothing."""
        return False
