"""Replaces the queue in deliveries that were requeued because their acks were late.

The client may still settle such a delivery, once: it does not know of the requeue until it reads
the basic.cancel of its consumer.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.consumers.consumer import Consumer, Source
from leveret.broker.core import Core


@final
class ReturnedSource(Source):
    """A source that ignores acks, rejects and requeues of its deliveries."""

    def __init__(self, core: Core) -> None:
        super().__init__(core, "", QueueSettings({}))
        self.deleted = True
        # Always scheduled, so that nothing schedules it: an ack, a reject or a requeue of a
        # delivery has no effect.
        self.scheduled = True

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Do nothing: no client can consume from it."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """Do nothing: it has no consumers."""

    def dispatch(self, limit: i64) -> bool:
        """Deliver nothing."""
        return False
