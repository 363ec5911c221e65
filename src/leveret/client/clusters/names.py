"""What the exchanges and queues of a topic and its clusters are called.

    topic `orders`             exchange `orders`
    cluster `billing` of it    exchange `orders@billing`
      without partitions       queue `orders@billing`
      with partitions          queues `orders@billing@0`, `orders@billing@1`, …
      its dead letters         queue `orders@billing@dead`
      the place of member 3    queue `orders@billing@member-3`, exclusive to that member
      the number of partitions `orders@billing@partitions-8`, which names nothing that exists

Neither a topic nor a cluster has an `@` in its name, so that two clusters never share a name,
whatever dots the names contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.client.names import checked
from leveret.limits import CLUSTER_MEMBERS_MAX, CLUSTER_PARTITIONS_MAX, SHORT_STRING_BYTES_MAX

SEPARATOR: Final = "@"


def checked_name(what: str, name: str) -> str:
    """Return the name of a topic or a cluster.

    Raises: TypeError for anything but text; ValueError for a name that is empty, contains `@` or a
    control character, begins with `amq.`, or is too long for AMQP.
    """
    checked(what, name)
    if not name:
        raise ValueError(f"the {what} has no name")
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
    """The names of one cluster of a topic; `partitions` is 0 where no order is asked for.

    Raises: as `checked_name`; ValueError when the longest name that follows from them has more than
    255 bytes, or for a number of partitions that there cannot be.
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
                f"topic {self.topic[:40]!r} and cluster {self.cluster[:40]!r} are too long "
                f"together: {longest[-20:]!r} ends a name of {len(longest.encode())} bytes, and a "
                f"queue's name has at most {SHORT_STRING_BYTES_MAX}"
            )

    @property
    def exchange(self) -> str:
        """The exchange that the topic is bound to; it leads to the cluster's queues."""
        return f"{self.topic}{SEPARATOR}{self.cluster}"

    @property
    def queues(self) -> tuple[str, ...]:
        """The queue that all members share, or the queue of each partition."""
        if self.partitions == 0:
            return (self.exchange,)
        return tuple(self.queue(partition) for partition in range(self.partitions))

    @property
    def dead_letters(self) -> str:
        """The queue of messages that could not be handled."""
        return f"{self.exchange}{SEPARATOR}dead"

    @property
    def layout(self) -> str:
        """What the cluster's exchange has as its alternate exchange, which brokers compare."""
        return f"{self.exchange}{SEPARATOR}partitions-{self.partitions}"

    def queue(self, partition: int) -> str:
        """Return the queue of a partition."""
        return f"{self.exchange}{SEPARATOR}{partition}"

    def place(self, member: int) -> str:
        """Return the queue by which a member holds its place."""
        return f"{self.exchange}{SEPARATOR}member-{member}"
