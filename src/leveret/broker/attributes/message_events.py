"""Message events: their names, and their recorder as queues and connections see it.

The names are the routing keys of the events in the event stream.

Invariant: while events are off, one mask (`Core.event_mask`) is the only check per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message
from leveret.names import Name

#: The stream of each vhost to which they are published.
EVENT_STREAM: Final = Name("amq.leveret.events")

#: A publish was accepted from a client (routed or not); was put into a queue; was delivered.
PUBLISHED: Final = "published"
ROUTED: Final = "routed"
DELIVERED: Final = "delivered"
#: Events that end a message, or return it to its queue.
ACKED: Final = "acked"
REQUEUED: Final = "requeued"
DEAD_LETTERED: Final = "dead_lettered"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
UNROUTABLE: Final = "unroutable"
#: Copies of a dead letter were not made, because there would be too many.
LETTERS_DROPPED: Final = "letters_dropped"
#: All waiting messages of a queue were dropped; the queue was deleted.
PURGED: Final = "purged"
DELETED: Final = "deleted"


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageEvents:
    """Records message events; this base class records none."""

    def __init__(self, mask: i64) -> None:
        #: Messages whose sequence has these bits all zero are recorded.
        self.mask: i64 = mask
        #: True while publishers are blocked: no events are recorded.
        self.paused = False
        #: Events that were dropped: too many at once, or there is no stream.
        self.dropped: i64 = 0

    def queue_event(
        self,
        event: str,
        vhost: str,
        queue: str,
        sequence: i64,
        message: Message | None,
        reason: str = "",
        count: i64 = 0,
    ) -> None:
        """Record an event of a message in a queue; `count` is its number of requeues."""

    def published(
        self, vhost: str, message: Message, queues: i64, targets: Sequence[object]
    ) -> None:
        """Record a publish, from a client or from staging, and how many `queues` it reached."""

    def forget_vhost(self, vhost: str) -> None:
        """Drop the pending events of a virtual host that is deleted."""

    def flush(self) -> None:
        """Write the pending events, outside of any other journal record."""
