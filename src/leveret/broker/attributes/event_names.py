"""The names of the events in the event stream: the routing keys of its messages."""

from __future__ import annotations

from typing import Final

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
