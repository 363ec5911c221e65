"""The hash ring: which of several targets does a value belong to, and to it again next time?

    ring 0 ..... a3 .... b1 .. a1 ....... b2 ... a2 ....... end, and round to 0
                               ^ hash of a value: the next point upwards is b2, its target is b

A target has `RING_POINTS_PER_WEIGHT` points for each unit of its weight.  Where they lie is a hash
of its label and their number alone, so that the ring is the same whatever was done in which order,
before and after a restart; a new target takes keys only to itself, and one that goes gives up only
its own.

It is a ring of targets, not of nodes: nothing is replicated, and nobody is asked.  It lies in
segments.  New points are put at the end of theirs, and those of a target that went stay where they
are: a segment is put in order when a value is looked for there.  Each removal does that to some
segments too, about as many points as it leaves, so that they do not gather.

Invariants: a point is 42 bits of hash above 20 bits of the place of its target; the points of a
segment, those with the same upper bits, are sorted and of targets that are there unless it is
marked as stale; a place is given to another target when no point of the former one is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, final

from mypy_extensions import i64
from xxhash import xxh3_64_intdigest

from leveret.limits import RING_POINTS_PER_WEIGHT

_PLACE_BITS: Final = 20
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_DROPPED_BITS: Final = 22

#: A million points are 4,000 in each, which are put in order in some 0.2 ms.
_SEGMENTS: Final = 256
_SEGMENT_SHIFT: Final = 62 - 8

#: The last digits of the numbers of points, as the first thousand have them and as others do.
_THOUSAND: Final = 1000
_DIGITS: Final = [b"%d" % number for number in range(_THOUSAND)]
_PADDED_DIGITS: Final = [b"%03d" % number for number in range(_THOUSAND)]

#: What it takes to look at a point and to sort it, where it takes 1 to make one.
_ORDERING: Final = 2


def ring_hash(value: bytes) -> int:
    """Return the 64-bit hash of a value, the same in every process."""
    return xxh3_64_intdigest(value)


@final
class Placed:
    """A target on a ring."""

    def __init__(self, target: object, place: int, points: i64) -> None:
        self.target: Final = target
        self.place: Final = place
        #: How many points it has.
        self.points: Final[i64] = points


@final
class HashRing:
    """Weighted targets on a ring.

    `size` is the number of their points, `held` counts those of targets that went too.  `work`
    counts the points that were made so far, and twice those that were put in order: the cost, in a
    unit of some 0.2 µs that is the same on every machine.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self.held: i64 = 0
        self.work: i64 = 0
        self._segments: list[list[int]] = [[] for _ in range(_SEGMENTS)]
        self._stale: list[bool] = [False] * _SEGMENTS
        #: Who is at each place; None for those of targets that went.
        self.places: list[Placed | None] = []
        self._by_target: dict[object, Placed] = {}
        #: Places that may be given away, and those of targets that went, each with the number of
        #: segments that must have been swept before.
        self._free: list[int] = []
        self._leaving: deque[tuple[int, int]] = deque()
        self._swept = 0

    def insert(self, target: object, label: str, weight: int) -> None:
        """Put `target`, which is not on the ring, there; equal labels have the same points."""
        place = self._new_place()
        count: i64 = i64(weight) * RING_POINTS_PER_WEIGHT
        placed = Placed(target, place, count)
        self.places[place] = placed
        self._by_target[target] = placed
        self.size += count
        self.held += count
        self.work += count
        prefix = label.encode() + b"\0"
        first: i64 = 0
        while first < count:
            if first == 0:
                self._make(prefix, _DIGITS, count, place)
            else:
                thousands = prefix + b"%d" % (first // _THOUSAND)
                self._make(thousands, _PADDED_DIGITS, count - first, place)
            first += _THOUSAND

    def _make(self, prefix: bytes, digits: list[bytes], count: i64, place: i64) -> None:
        """Make up to a thousand points, whose numbers are written as `prefix` and these digits."""
        segments = self._segments
        stale = self._stale
        if count < _THOUSAND:
            digits = digits[:count]
        for last in digits:
            high: i64 = i64(xxh3_64_intdigest(prefix + last) >> _DROPPED_BITS)
            point: i64 = high << _PLACE_BITS | place
            at = point >> _SEGMENT_SHIFT
            segments[at].append(int(point))
            stale[at] = True

    def remove(self, target: object) -> None:
        """Take `target`, which is on the ring, off it."""
        placed = self._by_target.pop(target)
        self.places[placed.place] = None
        self.size -= placed.points
        self._leaving.append((self._swept + _SEGMENTS, placed.place))
        self._stale = [True] * _SEGMENTS
        last = self.work + 2 * _ORDERING * placed.points
        for _ in range(_SEGMENTS):
            self._sweep()
            if self.work >= last:
                break

    def find(self, digest: int) -> object | None:
        """Return the target of a hash, or None on an empty ring."""
        if self.size == 0:
            return None
        point = (digest >> _DROPPED_BITS) << _PLACE_BITS
        number = point >> _SEGMENT_SHIFT
        segment = self._ordered(number)
        at = bisect_left(segment, point)
        while at == len(segment):
            number = (number + 1) % _SEGMENTS
            segment = self._ordered(number)
            at = 0
        placed = self.places[segment[at] & _PLACE_MASK]
        return None if placed is None else placed.target

    def _new_place(self) -> int:
        """Return a place that no point names."""
        leaving = self._leaving
        while leaving and (leaving[0][0] <= self._swept or len(self.places) > _PLACE_MASK):
            if leaving[0][0] <= self._swept:
                self._free.append(leaving.popleft()[1])
            else:
                self._sweep()
        if self._free:
            return self._free.pop()
        self.places.append(None)
        return len(self.places) - 1

    def _sweep(self) -> None:
        """Put the next segment in order."""
        self._ordered(self._swept % _SEGMENTS)
        self._swept += 1
        self.work += 1

    def _ordered(self, number: int) -> list[int]:
        """Return a segment in order."""
        segment = self._segments[number]
        if not self._stale[number]:
            return segment
        places = self.places
        self.work += _ORDERING * len(segment)
        self.held -= len(segment)
        segment = [point for point in segment if places[point & _PLACE_MASK] is not None]
        self.held += len(segment)
        segment.sort()
        self._segments[number] = segment
        self._stale[number] = False
        return segment
