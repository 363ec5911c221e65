"""The columns by which lists of queues are sorted, read without a snapshot of each queue.

A snapshot of a queue (`stats.QueueStats`) has forty fields.  A request for the hundred longest of
100,000 queues needs one column of each, and all fields of only a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.queue.queue import Queue
from leveret.broker.stats.stats import queues_in_turn


def _waiting(queue: Queue) -> int:
    return int(queue.ready_count() + queue.unacked_count + queue.retry_count())


def _waiting_bytes(queue: Queue) -> int:
    return int(queue.ready_bytes() + queue.unacked_bytes + queue.retry_bytes())


def _policy(queue: Queue) -> str:
    # Queues without a policy come before all others, as in RabbitMQ.
    return "" if queue.policy is None else queue.policy.name


#: The available figures, by their column in the HTTP API.
_FIGURES: Final[dict[str, Callable[[str, Queue], object]]] = {
    "name": lambda _, queue: queue.name,
    "vhost": lambda vhost, _: vhost,
    "type": lambda _, queue: queue.kind,
    "durable": lambda _, queue: queue.durable,
    "auto_delete": lambda _, queue: queue.auto_delete,
    "exclusive": lambda _, queue: queue.exclusive,
    "policy": lambda _, queue: _policy(queue),
    "consumers": lambda _, queue: len(queue.consumers),
    "memory": lambda _, queue: int(queue.booked),
    "messages": lambda _, queue: _waiting(queue),
    "messages_ready": lambda _, queue: int(queue.ready_count()),
    "messages_unacknowledged": lambda _, queue: int(queue.unacked_count),
    "message_bytes": lambda _, queue: _waiting_bytes(queue),
    "message_stats.publish": lambda _, queue: int(queue.target.published),
    "message_stats.ack": lambda _, queue: int(queue.acked),
}
FIGURES: Final = tuple(_FIGURES)

#: The figures of a queue in the requested order, then its vhost and name.  Two figures at the same
#: position have the same type.
Figures = tuple[object, ...]


def queue_figures(broker: Broker, wanted: tuple[str, ...], vhost: str | None) -> Iterator[Figures]:
    """Yield the figures of the queues of a vhost, or of all vhosts; `wanted` are from `FIGURES`."""
    figures = [_FIGURES[name] for name in wanted]
    for name, queue in queues_in_turn(broker, vhost):
        yield (*[figure(name, queue) for figure in figures], name, queue.name)
