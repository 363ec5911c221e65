"""The hash ring: which of several targets does a value belong to, and to it again next time?

    ring 0 ..... a3 .... b1 .. a1 ....... b2 ... a2 ....... end, and round to 0
                               ^ hash of a value: the next point upwards is b2, its target is b

A target has `RING_POINTS_PER_WEIGHT` points for each unit of its weight.  Where they lie is a hash
of its label and their number alone, so that the ring is the same whatever was done in which order,
before and after a restart; a new target takes keys only to itself, and one that goes gives up only
its own.

It is a ring of targets, not of nodes: nothing is replicated, and nobody is asked.  It lies in
segments, so that a small change costs what it adds or takes away and not what is there.

Invariants: a point is 42 bits of hash above 20 bits of the place of its target; the points of a
segment, those with the same upper bits, are sorted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, final

from mypy_extensions import i64
from xxhash import xxh3_64_intdigest

from leveret.limits import RING_POINTS_PER_WEIGHT

_PLACE_BITS: Final = 20
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_DROPPED_BITS: Final = 22

#: A million points are 4,000 in each: an insert moves 16 KB there on the average.
_SEGMENTS: Final = 256
_SEGMENT_SHIFT: Final = 62 - 8

#: From this part of all points on going through all segments is cheaper than point by point.
_HEAVY: Final = 20


def ring_hash(value: bytes) -> int:
    """Return the 64-bit hash of a value, the same in every process."""
    return xxh3_64_intdigest(value)


@final
class Placed:
    """A target on a ring."""

    def __init__(self, target: object, place: int, label: str, weight: int) -> None:
        self.target: Final = target
        self.place: Final = place
        self.label: Final = label
        self.weight: Final = weight

    def points(self) -> list[int]:
        """Return where it lies."""
        points: list[int] = []
        for number in range(self.weight * RING_POINTS_PER_WEIGHT):
            digest = xxh3_64_intdigest(f"{self.label}\0{number}".encode())
            points.append((digest >> _DROPPED_BITS) << _PLACE_BITS | self.place)
        return points


@final
class HashRing:
    """Weighted targets on a ring.  `size` is the number of points."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self._segments: list[list[int]] = [[] for _ in range(_SEGMENTS)]
        self._placed: list[Placed | None] = []
        self._by_target: dict[object, Placed] = {}
        #: Places of targets that went.
        self._free: list[int] = []

    def insert(self, target: object, label: str, weight: int) -> None:
        """Put `target`, which is not on the ring, there; equal labels have the same points."""
        if not self._free:
            self._free.append(len(self._placed))
            self._placed.append(None)
        placed = Placed(target, self._free.pop(), label, weight)
        self._placed[placed.place] = placed
        self._by_target[target] = placed
        points = placed.points()
        self.size += len(points)
        if len(points) * _HEAVY < self.size:
            for point in points:
                insort(self._segments[point >> _SEGMENT_SHIFT], point)
            return
        for point in points:
            self._segments[point >> _SEGMENT_SHIFT].append(point)
        for segment in self._segments:
            segment.sort()

    def remove(self, target: object) -> None:
        """Take `target`, which is on the ring, off it."""
        placed = self._by_target.pop(target)
        place = placed.place
        self._placed[place] = None
        self._free.append(place)
        points = placed.points()
        self.size -= len(points)
        segments = self._segments
        if len(points) * _HEAVY < self.size:
            for point in points:
                segment = segments[point >> _SEGMENT_SHIFT]
                del segment[bisect_left(segment, point)]
            return
        for number in range(_SEGMENTS):
            segments[number] = [one for one in segments[number] if one & _PLACE_MASK != place]

    def find(self, digest: int) -> object | None:
        """Return the target of a hash, or None on an empty ring."""
        if self.size == 0:
            return None
        point = (digest >> _DROPPED_BITS) << _PLACE_BITS
        number = point >> _SEGMENT_SHIFT
        segment = self._segments[number]
        at = bisect_left(segment, point)
        while at == len(segment):
            number = (number + 1) % _SEGMENTS
            segment = self._segments[number]
            at = 0
        placed = self._placed[segment[at] & _PLACE_MASK]
        return None if placed is None else placed.target
