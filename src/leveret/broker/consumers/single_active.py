"""The single active consumer: one consumer receives all messages until it ends.

When it ends, the next consumer takes over.  A new consumer with a higher priority takes over at
once.  The new active consumer receives nothing while its predecessor has unacked messages, because
requeued messages must be delivered first to keep the order.

Consumers that read all partitions of a super stream share the partitions.  Among the consumers with
the highest priority, partition n activates the consumer at place n modulo their number.  If all
subscribed to the partitions in the same order, each gets its share.  Adding or removing a consumer
moves some of the partitions.

Source: behaviour 61 (single active consumer); RabbitMQ's single active consumers of super streams.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import QueueConsumer
from leveret.broker.consumers.order import AbleConsumers, RoundRobin, Tiers


class SingleActive(RoundRobin):
    """The order that delivers all messages to the active consumer."""

    def __init__(self, consumers: list[QueueConsumer], partition: i64 = -1) -> None:
        super().__init__(consumers)
        #: The number of the partition, or negative for other queues.
        self.partition: i64 = partition
        self.active: QueueConsumer | None = None
        #: The previously active consumer, while it may have unacked messages.
        self.before: QueueConsumer | None = None
        self._by_priority: Final = Tiers()
        for consumer in consumers:
            self._by_priority.put(consumer)

    def added(self, consumer: QueueConsumer) -> RoundRobin:
        """Activate `consumer` if no other is active, or if the active one has a lower priority."""
        self._by_priority.put(consumer)
        active = self.active
        if self.partition >= 0:
            self._share()
        elif active is None or consumer.priority > active.priority:
            self._activate(consumer)
        return self

    def removed(self, consumer: QueueConsumer, place: i64) -> RoundRobin:
        """Activate the oldest consumer with the highest priority, if `consumer` was active."""
        self._by_priority.remove(consumer)
        if self.partition >= 0 or consumer is self.active:
            self._share()
        return self

    def _share(self) -> None:
        """Activate the consumer for this partition, or the oldest with the highest priority."""
        best = self._by_priority.highest()
        chosen = best[max(self.partition, 0) % len(best)] if best else None
        if chosen is not self.active:
            self._activate(chosen)

    def _activate(self, consumer: QueueConsumer | None) -> None:
        before = self.before
        if before is None or before.unacked_count == 0:
            # Otherwise the active consumer received nothing, and its predecessor still counts.
            self.before = self.active
        self.active = consumer
        if consumer is self.before:
            # It is active again before any other consumer received a message.
            self.before = None

    def next(self) -> QueueConsumer | None:
        """Return the active consumer if it can take a message, or None."""
        before = self.before
        if before is not None:
            if before.unacked_count > 0:
                return None
            self.before = None
        active = self.active
        return active if active is not None and active.ready() else None

    def able(self, limit: i64) -> AbleConsumers | None:
        """Return None, because `next` has checked the only consumer that may receive a message."""
        return None

    def has_ready(self) -> bool:
        """Return whether the active consumer can take a message."""
        return self.next() is not None

    def is_active(self, consumer: QueueConsumer) -> bool:
        """Return whether `consumer` is the active one."""
        return consumer is self.active
