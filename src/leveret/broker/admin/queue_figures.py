"""The figures by which long lists of queues are sorted, taken without a snapshot of each queue.

What a queue is (`stats.QueueStats`) has forty fields.  Who looks for the hundred longest of 100,000
queues wants one figure of each, and all fields of those hundred.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.admin.stats import QueuesInTurn
from leveret.broker.node.broker import Broker
from leveret.broker.queue.queue import Queue

#: The figures that there are, by the columns of the HTTP API that show them.
FIGURES: Final = (
    "name",
    "vhost",
    "type",
    "durable",
    "auto_delete",
    "exclusive",
    "policy",
    "consumers",
    "memory",
    "messages",
    "messages_ready",
    "messages_unacknowledged",
    "message_bytes",
    "message_stats.publish",
    "message_stats.ack",
)

#: The figures of a queue in the order that was asked for, then its vhost and name.  Where two are
#: compared, figures of the same place are of one type.
Figures = tuple[object, ...]


@final
class QueueFigures:
    """The figures of the queues of a vhost, or of all vhosts, some at a time.

    `wanted` are names of `FIGURES`.
    """

    def __init__(self, broker: Broker, wanted: tuple[str, ...], vhost: str | None) -> None:
        self._queues: Final = QueuesInTurn(broker, vhost)
        self._wanted: Final = wanted

    def take(self, count: i64) -> list[Figures]:
        """Return the figures of the next `count` queues at most; an empty list at the end."""
        wanted = self._wanted
        queues = self._queues.take(count)
        if len(wanted) == 1:
            only = wanted[0]
            return [(_figure(queue, vhost, only), vhost, queue.name) for vhost, queue in queues]
        return [
            (*[_figure(queue, vhost, name) for name in wanted], vhost, queue.name)
            for vhost, queue in queues
        ]


def _figure(queue: Queue, vhost: str, name: str) -> object:
    """Return a figure of a queue as lists compare it."""
    if name.startswith("messages"):
        return _waiting(queue, name)
    if name == "message_bytes":
        return int(queue.ready_bytes() + queue.unacked_bytes + queue.retry_bytes())
    if name == "message_stats.publish":
        return int(queue.target.published)
    if name == "message_stats.ack":
        return int(queue.acked)
    if name == "memory":
        return int(queue.booked)
    if name == "consumers":
        return len(queue.consumers)
    return _attribute(queue, vhost, name)


def _waiting(queue: Queue, name: str) -> int:
    if name == "messages_ready":
        return int(queue.ready_count())
    if name == "messages_unacknowledged":
        return int(queue.unacked_count)
    return int(queue.ready_count() + queue.unacked_count + queue.retry_count())


def _attribute(queue: Queue, vhost: str, name: str) -> object:
    if name == "name":
        return queue.name
    if name == "vhost":
        return vhost
    if name == "type":
        return queue.kind
    if name == "durable":
        return queue.durable
    if name == "auto_delete":
        return queue.auto_delete
    if name == "exclusive":
        return queue.exclusive
    assert name == "policy", name
    policy = queue.policy
    # Queues without a policy come before all others, as in RabbitMQ.
    return "" if policy is None else policy.name
