"""Pruning of a batch read by the query's filters, to offsets, times and streams that can match.

Pruning must never omit a matching row; it may leave rows that do not match, because Spark filters
the rows again.  Unknown filters have no effect.  The transport translates time bounds to offsets
(`offset_at`, `end_at`), because times may decrease with increasing offsets if a clock was set back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from leveret.spark.options.read import Options
from leveret.spark.versions import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Bounds that contain every matching row; `None` means no bound.

    `end` and `until_ms` are exclusive.  `streams` are names, `partitions` are numbers.
    """

    start: int | None = None
    end: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    streams: frozenset[object] | None = None
    partitions: frozenset[object] | None = None

    def leaves_out(self, options: Options, stream: str) -> bool:
        """Return whether no row of a stream can match."""
        if self.streams is not None and stream not in self.streams:
            return True
        return self.partitions is not None and options.partition_of(stream) not in self.partitions


def pruning_of(filters: Iterable[Filter], options: Options) -> Pruning:
    """Return the bounds of rows that match all filters."""
    found = Pruning()
    for one in filters:
        found = _narrowed(found, one, options)
    return found


def _narrowed(bounds: Pruning, one: Filter, options: Options) -> Pruning:
    """Narrow the bounds by one more filter."""
    known = (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    if not isinstance(one, known) or len(one.attribute) != 1:
        return bounds
    column = one.attribute[0]
    if column == "offset":
        return _by_offset(bounds, one)
    if column == "timestamp":
        return _by_time(bounds, one)
    values = _values(one)
    if values is None:
        return bounds
    if column == "partition":
        return dataclasses.replace(bounds, partitions=_both(bounds.partitions, values))
    # The topic of a partition is its super stream, not its own name.
    if column == "stream" or (column == "topic" and options.super_stream is None):
        return dataclasses.replace(bounds, streams=_both(bounds.streams, values))
    return bounds


def _values(one: Filter) -> frozenset[object] | None:
    """Return the values that an equality filter allows, or None for other filters."""
    if isinstance(one, In):
        return frozenset(one.value)
    return frozenset([one.value]) if isinstance(one, EqualTo | EqualNullSafe) else None


def _both(known: frozenset[object] | None, more: frozenset[object]) -> frozenset[object]:
    return more if known is None else known & more


def _by_offset(bounds: Pruning, one: Filter) -> Pruning:
    allowed = _values(one)
    if allowed is not None:
        offsets = [value for value in allowed if isinstance(value, int)]
        if not offsets:
            return bounds
        return _within(bounds, min(offsets), max(offsets) + 1)
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        return bounds
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        return _within(bounds, value + isinstance(one, GreaterThan), None)
    return _within(bounds, None, value + isinstance(one, LessThanOrEqual))


def _within(bounds: Pruning, start: int | None, end: int | None) -> Pruning:
    return dataclasses.replace(
        bounds, start=_later(bounds.start, start), end=_earlier(bounds.end, end)
    )


def _by_time(bounds: Pruning, one: Filter) -> Pruning:
    allowed = _values(one)
    values = [getattr(one, "value", None)] if allowed is None else [*allowed]
    moments = [_milliseconds(value) for value in values if isinstance(value, datetime)]
    if not moments or len(moments) != len(values) or None in moments:
        return bounds
    known = [moment for moment in moments if moment is not None]
    lower = None if isinstance(one, LessThan | LessThanOrEqual) else min(known)
    is_open = isinstance(one, GreaterThan | GreaterThanOrEqual)
    upper = None if is_open else max(known) + 1
    return dataclasses.replace(
        bounds, from_ms=_later(bounds.from_ms, lower), until_ms=_earlier(bounds.until_ms, upper)
    )


def _milliseconds(moment: datetime) -> int | None:
    """Return milliseconds since 1970, or None if the moment has no time zone."""
    return None if moment.tzinfo is None else (moment - _EPOCH) // _MILLISECOND


def _later(known: int | None, more: int | None) -> int | None:
    return more if known is None else known if more is None else max(known, more)


def _earlier(known: int | None, more: int | None) -> int | None:
    return more if known is None else known if more is None else min(known, more)
