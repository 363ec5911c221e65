"""The names of message events, and the interface of their recorder for queues and connections.

The names are the routing keys of the events in the event stream.

Invariant: while events are off, one mask (`Core.event_mask`) is the only check per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.message import Message
from leveret.names import Name

#: The stream of each vhost to which events are published.
EVENT_STREAM: Final = Name("amq.leveret.events")

#: A client's publish was accepted (routed or not); a message was put into a queue; was delivered.
PUBLISHED: Final = "published"
ROUTED: Final = "routed"
DELIVERED: Final = "delivered"
#: A message left its queue, or returned to it.
ACKED: Final = "acked"
REQUEUED: Final = "requeued"
DEAD_LETTERED: Final = "dead_lettered"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
UNROUTABLE: Final = "unroutable"
#: Copies of a dead letter were not made because of a limit.
LETTERS_DROPPED: Final = "letters_dropped"
#: All waiting messages of a queue were dropped; the queue was deleted.
PURGED: Final = "purged"
DELETED: Final = "deleted"


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageEvents:
    """The recorder of message events.  This base class records none."""

    def __init__(self, mask: i64) -> None:
        #: A message is recorded if these bits of its sequence are zero.
        self.mask: i64 = mask
        #: True while publishers are blocked, and no events are recorded.
        self.paused = False
        #: Events dropped because there were too many at once, or no stream.
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
        """Record a publish, from a client or from staging, and the number of `queues` reached."""

    def forget_vhost(self, vhost: str) -> None:
        """Drop the pending events of a virtual host that is deleted."""

    def flush(self) -> None:
        """Write the pending events, outside of any other journal record."""
