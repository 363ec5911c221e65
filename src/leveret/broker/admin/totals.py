"""Sums over all queues, taken some at a time: what the overview shows, without a snapshot of each.

Invariant: what is in a sum only grows over the life of the broker where it counts what was done,
because deleted queues leave theirs behind (`broker.core.counts`).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.admin.metrics import QueueLevels
from leveret.broker.core.counts import QueueCounts
from leveret.broker.node.broker import Broker


@final
class QueueSums:
    """The sums of all queues that are not hidden, or of those in some vhosts.

    They are whole once `add` returns False.
    """

    def __init__(self, broker: Broker, vhosts: list[str] | None = None) -> None:
        names = list(broker.vhosts) if vhosts is None else vhosts
        self._left: Final = [
            list(broker.vhosts[name].queues.by_name.values())
            for name in names
            if name in broker.vhosts
        ]
        #: What is gone was of all vhosts.
        self._whole: Final = vhosts is None
        self._next: i64 = 0
        self._counts: Final = broker.core.counts
        self.queues = 0
        self.consumers = 0
        self.ready = 0
        self.unacked = 0
        self.published = 0
        self.delivered = 0
        self.delivered_no_ack = 0
        self.got = 0
        #: Of these, what was taken without acks; and requests that found nothing.
        self.got_no_ack = 0
        self.got_nothing = 0
        self.redelivered = 0
        self.acked = 0

    def add(self, count: i64) -> bool:
        """Add the next `count` queues; return whether some are left."""
        left = self._left
        while left and count > 0:
            queues = left[-1]
            if self._next >= len(queues):
                left.pop()
                self._next = 0
                continue
            queue = queues[self._next]
            self._next += 1
            count -= 1
            if queue.hidden or queue.deleted:
                continue
            self.queues += 1
            self.consumers += len(queue.consumers)
            self.ready += int(queue.ready_count())
            self.unacked += int(queue.unacked_count)
            self.published += int(queue.target.published)
            self.delivered += int(queue.delivered)
            self.delivered_no_ack += int(queue.delivered_no_ack)
            self.got += int(queue.got)
            self.got_no_ack += int(queue.got_no_ack)
            self.got_nothing += int(queue.got_nothing)
            self.redelivered += int(queue.redelivered)
            self.acked += int(queue.acked)
        if left:
            return True
        if self._whole:
            self._add_deleted()
        return False

    def counts(self) -> list[int]:
        """Return the sums by the names of `QUEUE_COUNTS`."""
        return [
            self.ready,
            self.unacked,
            self.published,
            self.delivered,
            self.delivered_no_ack,
            self.got - self.got_no_ack,
            self.got_no_ack,
            self.got_nothing,
            self.redelivered,
            self.acked,
        ]

    def _add_deleted(self) -> None:
        """Add what queues had done that are deleted."""
        for gone in self._counts.gone_queues.values():
            self.add_counts(gone)

    def add_levels(self, levels: QueueLevels) -> None:
        """Add what a walk over queues found in them."""
        self.queues += int(levels.queues)
        self.consumers += int(levels.consumers)
        self.ready += int(levels.ready - levels.retried)
        self.unacked += int(levels.unacked)

    def add_counts(self, done: QueueCounts, sign: int = 1) -> None:
        """Add what queues did, or take it off where `sign` is -1."""
        self.published += sign * int(done.published)
        self.delivered += sign * int(done.delivered)
        self.delivered_no_ack += sign * int(done.delivered_no_ack)
        self.got += sign * int(done.got)
        self.got_no_ack += sign * int(done.got_no_ack)
        self.got_nothing += sign * int(done.got_nothing)
        self.redelivered += sign * int(done.redelivered)
        self.acked += sign * int(done.acked)


#: The names of what `queue_counts` returns, in its order.
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
    """Return what a queue holds and has done, by the names above; None where there is none."""
    found = broker.vhosts.get(vhost)
    queue = None if found is None else found.queues.by_name.get(name)
    if queue is None:
        return None
    return [
        int(queue.ready_count()),
        int(queue.unacked_count),
        int(queue.target.published),
        int(queue.delivered),
        int(queue.delivered_no_ack),
        int(queue.got - queue.got_no_ack),
        int(queue.got_no_ack),
        int(queue.got_nothing),
        int(queue.redelivered),
        int(queue.acked),
    ]


def queue_changes(broker: Broker) -> tuple[int, int]:
    """Return how many queues came and went since the start: who sees the same sees no other."""
    return int(broker.core.counts.queues_created), int(broker.core.counts.queues_deleted)
