"""Which queues a connection may use: no other's exclusive ones, no other user's staging queues."""

from __future__ import annotations

from leveret.broker.core.turn import Link
from leveret.broker.queue.queue import Queue
from leveret.broker.vhost.state import VhostState
from leveret.errors import NotFound, ResourceLocked
from leveret.large_dict import LargeDict
from leveret.names import Name


def existing_queue(
    vhost: VhostState, queues: LargeDict[str, Queue], name: Name, link: Link | None
) -> Queue:
    """Return a queue that `link` may use.

    Raises: NotFound (404); ResourceLocked (405) for another link's exclusive queue;
    AccessRefused (403) for another user's staging queue.
    """
    queue = queues.get(name)
    if queue is None:
        raise NotFound(f"no {vhost.queue_label(name)}")
    check_link(vhost, queue, link)
    return queue


def check_link(vhost: VhostState, queue: Queue, link: Link | None) -> None:
    """Check that `link` may use a queue.

    Raises: ResourceLocked (405); AccessRefused (403) for another user's staging queue.
    """
    if queue.owner is not None and queue.owner is not link:
        raise locked(vhost, queue.name)
    if queue.hidden and link is not None:
        queue.check_user(link.as_owner)


def locked(vhost: VhostState, name: str) -> ResourceLocked:
    """Return the error for a queue that is another link's."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {vhost.queue_label(name)}. It could be "
        "originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )
