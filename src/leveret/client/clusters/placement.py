"""Assignment of partitions to members, by consumer priorities.

Every member consumes from every partition, and the consumer with the highest priority becomes the
single active consumer of the partition.  A member's priorities depend only on its number, so
members need not know each other, and a member that rejoins is preferred for the same partitions.

Priorities are computed as if the members joined one after the other.  Member 0 takes all
partitions, and each later member takes an equal share from the members with the most partitions,
with a higher priority.  If members 0 to n-1 are present, their numbers of partitions differ by at
most one.  When a member leaves, its partitions return to the members from which it took them.
"""

from __future__ import annotations

import zlib


def preferred(partitions: int, member: int) -> frozenset[int]:
    """Return the partitions that a member takes from the members with lower numbers."""
    owners = [0] * partitions
    taken = frozenset(range(partitions))
    for joining in range(1, member + 1):
        counts = [0] * joining
        for owner in owners:
            counts[owner] += 1
        mine: list[int] = []
        for _ in range(partitions // (joining + 1)):
            richest = counts.index(max(counts))
            mine.append(owners.index(richest))
            counts[richest] -= 1
            owners[mine[-1]] = joining
        taken = frozenset(mine)
    return taken


def priorities(partitions: int, member: int) -> list[int]:
    """Return the `x-priority` of the member's consumer of each partition.

    It is `member + 1` if the member is preferred for the partition.  Otherwise it is negative and
    pseudo-random, so that partitions without a preferred member are spread as well.
    """
    mine = preferred(partitions, member)
    return [
        member + 1 if partition in mine else -1 - _standby(partition, member)
        for partition in range(partitions)
    ]


def _standby(partition: int, member: int) -> int:
    """Return a pseudo-random number below 1,000 that depends on the partition and the member."""
    return zlib.crc32(b"%d/%d" % (partition, member)) % 1000
