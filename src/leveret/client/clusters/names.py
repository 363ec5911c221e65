"""The names of the exchanges and queues of a topic and its clusters.

    topic `orders`             exchange `orders`
    its cluster `billing`      exchange `orders@billing`
      without partitions       queue `orders@billing`
      with partitions          queues `orders@billing@0`, `orders@billing@1`, …
      its dead letters         queue `orders@billing@dead`
      the place of member 3    queue `orders@billing@member-3`, exclusive to that member
      the number of partitions `orders@billing@partitions-8`, a name that is never declared

Topic and cluster names may contain dots but no `@`, so that two clusters never share a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.client.names import checked
from leveret.limits import CLUSTER_MEMBERS_MAX, CLUSTER_PARTITIONS_MAX, SHORT_STRING_BYTES_MAX

SEPARATOR: Final = "@"


def checked_name(what: str, name: str) -> str:
    """Return the name of a topic or a cluster if it is valid.

    Raises: TypeError if it is not a str; ValueError if it is empty, contains `@` or a control
    character, begins with `amq.`, or is too long for AMQP.
    """
    checked(what, name)
    if not name:
        raise ValueError(f"the name of the {what} is empty")
    if SEPARATOR in name:
        raise ValueError(
            f"{what} {name!r} contains {SEPARATOR!r}, which separates the names of topic and "
            "cluster: use another character"
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise ValueError(f"{what} {name!r} contains a control character")
    if name.startswith("amq."):
        raise ValueError(f"{what} {name!r} begins with 'amq.', which the broker reserves")
    return name


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The names of one cluster of a topic; `partitions` is 0 for a cluster without order.

    Raises: as `checked_name`; ValueError if the longest derived name has more than 255 bytes, or
    for an invalid number of partitions.
    """

    topic: str
    cluster: str
    partitions: int = 0

    def __post_init__(self) -> None:
        checked_name("topic", self.topic)
        checked_name("cluster", self.cluster)
        if not 0 <= self.partitions <= CLUSTER_PARTITIONS_MAX:
            raise ValueError(
                f"a cluster has 0 to {CLUSTER_PARTITIONS_MAX} partitions, not {self.partitions}"
            )
        longest = max(
            self.layout, self.place(CLUSTER_MEMBERS_MAX - 1), key=lambda name: len(name.encode())
        )
        if len(longest.encode()) > SHORT_STRING_BYTES_MAX:
            raise ValueError(
                f"topic {self.topic[:40]!r} and cluster {self.cluster[:40]!r} are too "
                f"long together: the name ending in {longest[-20:]!r} has "
                f"{len(longest.encode())} bytes; the maximum is {SHORT_STRING_BYTES_MAX}"
            )

    @property
    def exchange(self) -> str:
        """The exchange that is bound to the topic and routes to the cluster's queues."""
        return f"{self.topic}{SEPARATOR}{self.cluster}"

    @property
    def queues(self) -> tuple[str, ...]:
        """The queue shared by all members, or the queue of each partition."""
        if self.partitions == 0:
            return (self.exchange,)
        return tuple(self.queue(partition) for partition in range(self.partitions))

    @property
    def dead_letters(self) -> str:
        """The queue of dead-lettered messages."""
        return f"{self.exchange}{SEPARATOR}dead"

    @property
    def layout(self) -> str:
        """The alternate exchange of the cluster's exchange, compared by brokers at a declare."""
        return f"{self.exchange}{SEPARATOR}partitions-{self.partitions}"

    def queue(self, partition: int) -> str:
        """Return the queue of a partition."""
        return f"{self.exchange}{SEPARATOR}{partition}"

    def place(self, member: int) -> str:
        """Return the queue that reserves a member's place."""
        return f"{self.exchange}{SEPARATOR}member-{member}"
