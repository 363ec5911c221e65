"""A message as passed to a cluster's handler.

It has no ack: the handler's return value settles it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.client.message import Message
    from leveret.wire.properties import BasicProperties


class ClusterMessage:
    """A message of a topic, as `on_message` gets it.

    It has no ack: the `Outcome` that `on_message` returns settles it.
    """

    __slots__ = ("_message", "attempt", "partition")

    def __init__(self, message: Message, attempt: int, partition: int | None) -> None:
        self._message = message
        #: The number of this attempt, from 1.  In a cluster without partitions it counts all
        #: redeliveries, also those after a member was killed; in a partition, the calls of this
        #: member.
        self.attempt = attempt
        #: The partition's number, or None in a cluster without partitions.
        self.partition = partition

    def again(self) -> ClusterMessage:
        """Return a copy with the next attempt number."""
        return ClusterMessage(self._message, self.attempt + 1, self.partition)

    @property
    def body(self) -> bytes:
        """The body."""
        return self._message.body

    @property
    def key(self) -> str:
        """The key set by the producer; in a partition, messages with the same key are in order."""
        return self._message.routing_key

    @property
    def properties(self) -> BasicProperties:
        """The properties, decoded once.  Raises: SyntaxFault (502) when they are malformed."""
        return self._message.properties

    @property
    def headers(self) -> dict[str, object]:
        """The headers, with times as datetimes in UTC; empty if the message has none."""
        return self._message.headers

    @property
    def message_id(self) -> str | None:
        """The message ID set by the producer."""
        return self._message.properties.message_id

    @property
    def redelivered(self) -> bool:
        """Whether this or another member may have handled the message before."""
        return self._message.redelivered

    def __repr__(self) -> str:
        where = "" if self.partition is None else f" partition {self.partition}"
        size = f"{len(self.body)} bytes"
        return f"<ClusterMessage {self.key!r}{where} attempt {self.attempt} {size}>"
