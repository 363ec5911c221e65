"""The hash ring: which of several targets does a value belong to, and to it again next time?

    ring 0 ..... a3 .... b1 .. a1 ....... b2 ... a2 ....... end, and round to 0
                               ^ hash of a value: the next point upwards is b2, its target is b

A target has `RING_POINTS_PER_WEIGHT` points for each unit of its weight.  Where they lie is a hash
of its label and their number alone, so that the ring is the same whatever was done in which order,
before and after a restart; a new target takes keys only to itself, and one that goes gives up only
its own.

It is a ring of targets, not of nodes: nothing is replicated, and nobody is asked.  It lies in
segments.  New points are put at the end of theirs, and those of a target that went stay where they
are: a segment is put in order when a value is looked for there.

A change takes effect by and by, because a target may have 100,000 points.  `insert` and `remove`
only note what they *owe*, and `settle` does some of it: it makes the points of new targets, and
puts as many points in order as each removal has left, so that they do not gather.  A new target has
its share when nothing is owed; until then values come to it one after the other, and none goes
back.  One that went has nothing any more from the beginning.

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

    def __init__(self, target: object, place: int, prefix: bytes, points: i64) -> None:
        self.target: Final = target
        self.place: Final = place
        #: What the hash of each of its points begins with.
        self.prefix: Final = prefix
        #: How many points it has, and how many of them are made.
        self.points: Final[i64] = points
        self.made: i64 = 0


@final
class HashRing:
    """Weighted targets on a ring.

    `size` is the number of their points, made or not; `held` counts those that are made, and those
    of targets that went too.  `work` counts the points that were made so far, and twice those that
    were put in order: the cost, in a unit of some 0.2 µs that is the same on every machine.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self.held: i64 = 0
        self.work: i64 = 0
        #: Points that are made of targets that are there.
        self._live: i64 = 0
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
        #: Targets that have fewer points than they shall have; they may be gone by now.
        self._growing: deque[Placed] = deque()
        #: The work that sweeping segments is still to take, and the segment at which it ends.
        self._unswept: i64 = 0
        self._sweep_end = 0

    def insert(self, target: object, label: str, weight: int) -> None:
        """Put `target`, which is not on the ring, there; equal labels have the same points.

        Its points are owed.
        """
        place = self._new_place()
        count: i64 = i64(weight) * RING_POINTS_PER_WEIGHT
        placed = Placed(target, place, label.encode() + b"\0", count)
        self.places[place] = placed
        self._by_target[target] = placed
        self.size += count
        self._growing.append(placed)

    def owes(self) -> bool:
        """Return whether `settle` has something to do."""
        return self._unswept > 0 or len(self._growing) > 0

    def settle(self, units: i64) -> None:
        """Do what is owed, until that has taken so many units of `work` or a few more.

        The points of targets that went come first: so they do not gather whatever comes and goes.
        """
        last = self.work + units
        while self.work < last:
            if self._unswept > 0:
                self._sweep_on()
            elif self._growing:
                self._grow(self._growing[0])
            else:
                break

    def _sweep_on(self) -> None:
        """Put the next segment in order on account of the targets that went."""
        before = self.work
        self._sweep()
        self._unswept -= self.work - before
        if self._swept >= self._sweep_end:
            self._unswept = 0

    def _grow(self, placed: Placed) -> None:
        """Make the next points of the target that grows first, up to a thousand."""
        left = placed.points - placed.made
        if left == 0 or self.places[placed.place] is not placed:
            self._growing.popleft()
            return
        count: i64 = min(left, _THOUSAND)
        if placed.made == 0:
            self._make(placed.prefix, _DIGITS, count, placed.place)
        else:
            thousands = placed.prefix + b"%d" % (placed.made // _THOUSAND)
            self._make(thousands, _PADDED_DIGITS, count, placed.place)
        placed.made += count
        self._live += count
        self.held += count
        self.work += count

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
        """Take `target`, which is on the ring, off it; to put its points out of the way is owed."""
        placed = self._by_target.pop(target)
        self.places[placed.place] = None
        self.size -= placed.points
        self._live -= placed.made
        self._leaving.append((self._swept + _SEGMENTS, placed.place))
        if placed.made > 0:
            self._stale = [True] * _SEGMENTS
            self._unswept += 2 * _ORDERING * placed.made
            self._sweep_end = self._swept + _SEGMENTS

    def empty(self) -> list[list[int]]:
        """Drop all points, and return them for the caller to let go of them."""
        segments = self._segments
        self._segments = [[] for _ in range(_SEGMENTS)]
        self._growing.clear()
        self.held = 0
        self._live = 0
        self._unswept = 0
        return segments

    def find(self, digest: int) -> object | None:
        """Return the target of a hash, or None on a ring without points."""
        if self._live == 0:
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
