"""Sums over queues for the overview, without a snapshot of each queue."""

from __future__ import annotations

from typing import Final, final

from leveret.broker.broker import Broker
from leveret.broker.counters import QueueCounts
from leveret.broker.queue.queue import Queue
from leveret.broker.stats.metrics import QueueLevels
from leveret.broker.stats.stats import find_queue


@final
class QueueSums:
    """Sums of the contents and the counters of some queues."""

    def __init__(self) -> None:
        self.queues = 0
        self.consumers = 0
        self.ready = 0
        self.unacked = 0
        self.done: Final = QueueCounts()

    def add(self, queue: Queue) -> None:
        """Add the contents and the counters of a queue."""
        self.queues += 1
        self.consumers += len(queue.consumers)
        self.ready += int(queue.ready_count())
        self.unacked += int(queue.unacked_count)
        queue.add_counts(self.done)

    def add_levels(self, levels: QueueLevels) -> None:
        """Add the levels found by a walk over queues."""
        self.queues += int(levels.queues)
        self.consumers += int(levels.consumers)
        self.ready += int(levels.ready - levels.retried)
        self.unacked += int(levels.unacked)

    def counts(self) -> list[int]:
        """Return the sums in the order of `QUEUE_COUNTS`."""
        done = self.done
        return [
            self.ready,
            self.unacked,
            int(done.published),
            int(done.delivered),
            int(done.delivered_no_ack),
            int(done.got - done.got_no_ack),
            int(done.got_no_ack),
            int(done.got_nothing),
            int(done.redelivered),
            int(done.acked),
        ]


#: The names of the values returned by `QueueSums.counts` and `queue_counts`, in order.
QUEUE_COUNTS: Final = (
    "messages_ready",
    "messages_unacknowledged",
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)


def queue_counts(broker: Broker, vhost: str, name: str) -> list[int] | None:
    """Return the values of `QUEUE_COUNTS` for a queue, or None if it does not exist."""
    queue = find_queue(broker, vhost, name)
    if queue is None:
        return None
    sums = QueueSums()
    sums.add(queue)
    return sums.counts()


def queue_changes(broker: Broker) -> tuple[int, int]:
    """Return the numbers of queues created and deleted since startup, to detect changes."""
    return int(broker.core.counts.queues_created), int(broker.core.counts.queues_deleted)
