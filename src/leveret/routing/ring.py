"""The hash ring: which of several targets does a value belong to, and to it again next time?

    ring 0 ..... a3 .... b1 .. a1 ....... b2 ... a2 ....... end, and round to 0
                               ^ hash of a value: the next point upwards is b2, its target is b

A target has `RING_POINTS_PER_WEIGHT` points for each unit of its weight.  Where they lie is a hash
of its label and their number alone, so that the ring is the same whatever was done in which order,
before and after a restart; a new target takes keys only to itself, and one that goes gives up only
its own.

It is a ring of targets, not of nodes: nothing is replicated, and nobody is asked.

Invariants: a point is 42 bits of hash above 20 bits of the place of its target; points are sorted
whenever `find` looks at them.  The place of a target that went is given again only when its points
are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64
from xxhash import xxh3_64_intdigest

from leveret.limits import RING_POINTS_PER_WEIGHT

_PLACE_BITS: Final = 20
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_DROPPED_BITS: Final = 22


def ring_hash(value: bytes) -> int:
    """Return the 64-bit hash of a value, the same in every process."""
    return xxh3_64_intdigest(value)


@final
class HashRing:
    """Weighted targets on a ring.  `size` is the number of points."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self._points: list[int] = []
        #: Points that are not sorted in yet.
        self._fresh: list[int] = []
        self._targets: list[object | None] = []
        self._weights: dict[object, int] = {}
        self._places: dict[object, int] = {}
        #: Places of targets that went and whose points are still there.
        self._gone: set[int] = set()
        self._free: list[int] = []

    def insert(self, target: object, label: str, weight: int) -> None:
        """Put `target`, which is not on the ring, there; equal labels have the same points."""
        if self._free:
            place = self._free.pop()
            self._targets[place] = target
        else:
            place = len(self._targets)
            self._targets.append(target)
        self._places[target] = place
        self._weights[target] = weight
        fresh = self._fresh
        for number in range(weight * RING_POINTS_PER_WEIGHT):
            digest = xxh3_64_intdigest(f"{label}\0{number}".encode())
            fresh.append((digest >> _DROPPED_BITS) << _PLACE_BITS | place)
        self.size += weight * RING_POINTS_PER_WEIGHT

    def remove(self, target: object) -> None:
        """Take `target`, which is on the ring, off it."""
        place = self._places.pop(target)
        self._targets[place] = None
        self._gone.add(place)
        self.size -= self._weights.pop(target) * RING_POINTS_PER_WEIGHT

    def find(self, digest: int) -> object | None:
        """Return the target of a hash, or None on an empty ring."""
        if self._fresh or self._gone:
            self._settle()
        points = self._points
        if not points:
            return None
        at = bisect_left(points, (digest >> _DROPPED_BITS) << _PLACE_BITS)
        return self._targets[points[at if at < len(points) else 0] & _PLACE_MASK]

    def _settle(self) -> None:
        """Sort in what is new and drop what went: once after many changes."""
        points = self._points + self._fresh
        self._fresh = []
        gone = self._gone
        if gone:
            points = [point for point in points if point & _PLACE_MASK not in gone]
            self._free += sorted(gone)
            self._gone = set()
        points.sort()
        self._points = points
