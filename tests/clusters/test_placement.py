"""Which member is preferred for which partition: evenly, and the same one each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from leveret.client.clusters.placement import preferred, priorities


def active(partitions: int, members: Iterable[int]) -> list[int]:
    """Return the member of the highest priority of each partition."""
    all_of = {member: priorities(partitions, member) for member in members}
    return [max(all_of, key=lambda member: all_of[member][p]) for p in range(partitions)]


@pytest.mark.parametrize("partitions", [1, 2, 7, 16, 64, 256])
@pytest.mark.parametrize("members", [1, 2, 3, 4, 7, 16, 100])
def test_members_without_gaps_share_evenly(partitions: int, members: int) -> None:
    counts = Counter(active(partitions, range(members)))
    shares = [counts[member] for member in range(members)]
    assert max(shares) - min(shares) <= 1
    assert sum(shares) == partitions


def test_a_member_that_comes_moves_only_what_it_takes() -> None:
    for members in range(1, 16):
        before = active(64, range(members))
        after = active(64, range(members + 1))
        moved = {p for p in range(64) if before[p] != after[p]}
        assert moved == preferred(64, members)
        assert len(moved) == 64 // (members + 1)


def test_a_member_that_is_gone_moves_only_what_it_had() -> None:
    everyone = active(16, range(4))
    for gone in range(4):
        rest = active(16, [member for member in range(4) if member != gone])
        kept = [p for p in range(16) if everyone[p] != gone]
        assert [rest[p] for p in kept] == [everyone[p] for p in kept]


def test_who_stands_by_has_a_lower_priority_than_all_who_are_preferred() -> None:
    for member in (0, 1, 5, 255):
        mine = preferred(16, member)
        wanted = priorities(16, member)
        assert [wanted[p] > 0 for p in range(16)] == [p in mine for p in range(16)]
