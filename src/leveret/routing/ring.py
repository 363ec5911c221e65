"""A consistent hash ring that maps a value to one of several targets.

    ring 0 ..... a3 .... b1 .. a1 ....... b2 ... a2 ....... end, and round to 0
                               ^ hash of a value: the next point upwards is b2, its target is b

A target has `RING_POINTS_PER_WEIGHT` points for each unit of its weight.  The position of a point
is a hash of the target's label and the point's number alone.  So the ring does not depend on the
order of changes, and is the same after a restart.  Values only move to a new target, or from a
removed target, and never between other targets.

The targets are not nodes: nothing is replicated.

The ring is stored in segments of points with the same upper bits.  New points are appended to their
segment, and points of a removed target stay in place.  A segment is cleaned and sorted when a value
is looked up in it.

A change takes effect gradually, because a target may have 100,000 points.  `insert` and `remove`
only record the pending work, and `settle` does part of it.  It creates the points of new targets,
and cleans as many points as each removal has left, so that they do not accumulate.  A new target
gains values one by one, and has its full share when no work is pending.  A removed target stops
getting values immediately.

Invariants: a point is 42 bits of hash above 20 bits of its target's place; the points of a segment
are sorted and belong to existing targets unless the segment is marked as stale; a place is reused
only when no point of its former target is left.
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

#: Of a million points, each segment has 4,000, which are sorted in some 0.2 ms.
_SEGMENTS: Final = 256
_SEGMENT_SHIFT: Final = 62 - 8

#: The last digits of the points' numbers, for the first thousand points and for later points.
_THOUSAND: Final = 1000
_DIGITS: Final = [b"%d" % number for number in range(_THOUSAND)]
_PADDED_DIGITS: Final = [b"%03d" % number for number in range(_THOUSAND)]

#: The cost of checking and sorting a point, relative to 1 for creating it.
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
        #: The prefix of the hash input of each of its points.
        self.prefix: Final = prefix
        #: The number of its points, and the number of points created so far.
        self.points: Final[i64] = points
        self.made: i64 = 0


@final
class HashRing:
    """Weighted targets on a ring.

    `size` is the number of points of all targets, created or not; `held` counts created points,
    including those of removed targets.  `work` counts the points created so far, plus twice the
    points sorted.  It measures the cost in units of some 0.2 µs, independently of the machine.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self.held: i64 = 0
        self.work: i64 = 0
        #: Created points of existing targets.
        self._live: i64 = 0
        self._segments: list[list[int]] = [[] for _ in range(_SEGMENTS)]
        self._stale: list[bool] = [False] * _SEGMENTS
        #: The target at each place; None for removed targets.
        self.places: list[Placed | None] = []
        self._by_target: dict[object, Placed] = {}
        #: Places that may be reused, and places of removed targets, each with the count of swept
        #: segments (`_swept`) at which it may be reused.
        self._free: list[int] = []
        self._leaving: deque[tuple[int, int]] = deque()
        self._swept = 0
        #: Targets that do not have all their points yet.  They may have been removed since.
        self._growing: deque[Placed] = deque()
        #: The remaining work of sweeping segments, and the segment at which sweeping ends.
        self._unswept: i64 = 0
        self._sweep_end = 0

    def insert(self, target: object, label: str, weight: int) -> None:
        """Add a new `target`; equal labels have the same points.

        `settle` creates the points later.
        """
        place = self._new_place()
        count: i64 = i64(weight) * RING_POINTS_PER_WEIGHT
        placed = Placed(target, place, label.encode() + b"\0", count)
        self.places[place] = placed
        self._by_target[target] = placed
        self.size += count
        self._growing.append(placed)

    def owes(self) -> bool:
        """Return whether `settle` has pending work."""
        return self._unswept > 0 or len(self._growing) > 0

    def settle(self, units: i64) -> None:
        """Do pending work of about `units` of `work`, slightly more at most.

        Clean points of removed targets first, so that they never accumulate.
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
        """Sweep the next segment because of removed targets."""
        before = self.work
        self._sweep()
        self._unswept -= self.work - before
        if self._swept >= self._sweep_end:
            self._unswept = 0

    def _grow(self, placed: Placed) -> None:
        """Create up to a thousand points of the first growing target."""
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
        """Create up to a thousand points, numbered by `prefix` followed by these digits."""
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
        """Remove an existing `target`; `settle` removes its points later."""
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
        """Remove all points, and return them for the caller to free."""
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
        """Return a place that no point refers to."""
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
        """Clean and sort the next segment."""
        self._ordered(self._swept % _SEGMENTS)
        self._swept += 1
        self.work += 1

    def _ordered(self, number: int) -> list[int]:
        """Return a segment, cleaned and sorted."""
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
