"""The names of the events that the event stream tells of: the routing keys of its messages."""

from __future__ import annotations

from typing import Final

from leveret.names import Name

#: The stream of each vhost that they are published to.
EVENT_STREAM: Final = Name("amq.leveret.events")

#: A publish was taken from a client (queue or not); came into a queue; went to a consumer.
PUBLISHED: Final = "published"
ROUTED: Final = "routed"
DELIVERED: Final = "delivered"
#: What ends a message, or brings it back.
ACKED: Final = "acked"
REQUEUED: Final = "requeued"
DEAD_LETTERED: Final = "dead_lettered"
EXPIRED: Final = "expired"
DROPPED: Final = "dropped"
UNROUTABLE: Final = "unroutable"
#: Copies of a dead letter were not made, because there would be too many.
LETTERS_DROPPED: Final = "letters_dropped"
#: All that waits in a queue is gone; the queue is gone.
PURGED: Final = "purged"
DELETED: Final = "deleted"
