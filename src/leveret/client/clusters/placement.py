"""Which member of a cluster is preferred for which partition, as the priorities of its consumers.

Every member consumes from every partition, and the single active consumer of a partition is the
one of the highest priority that is there.  The priorities are a function of the member's number
alone, so no member has to know of the others, and a member that comes back is preferred for the
same partitions as before.

They are made as if members joined one after the other: member 0 takes all partitions, and each
member after it takes its equal share from those that have the most, with a priority above theirs.
With members 0 to n-1 there, no member has more than one partition more than another.  The
partitions of a member that is gone fall back to those that it took them from.
"""

from __future__ import annotations

import zlib


def preferred(partitions: int, member: int) -> frozenset[int]:
    """Return the partitions that the member takes when it joins those with lower numbers."""
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

    It is `member + 1` where the member is preferred, and negative where it stands by for others,
    differently for each member, so that what has no preferred member is spread as well.
    """
    mine = preferred(partitions, member)
    return [
        member + 1 if partition in mine else -1 - _standby(partition, member)
        for partition in range(partitions)
    ]


def _standby(partition: int, member: int) -> int:
    """Return a number below 1,000 that depends on both and looks random."""
    return zlib.crc32(b"%d/%d" % (partition, member)) % 1000
