"""Conversion of received AMQP times, which are in seconds, to datetimes in UTC.

The opposite conversion is in `leveret.wire`.  A time beyond the year 9999, for example from a
publisher that counts milliseconds, stays a `Timestamp`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from leveret.wire.tables import Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The first second beyond the range of datetime.
_END: Final = 253_402_300_800


def moment_of(seconds: int) -> datetime | None:
    """Return a time in UTC, or None beyond the year 9999."""
    return datetime.fromtimestamp(seconds, UTC) if seconds < _END else None


def with_moments(table: dict[str, object]) -> dict[str, object]:
    """Return `table`, or a copy with all times, also nested ones, as datetimes."""
    if not _has_times(table.values()):
        return table
    return {key: _converted(value) for key, value in table.items()}


def _has_times(values: Iterable[object]) -> bool:
    """Return whether the values contain a time, at any depth."""
    for value in values:
        if isinstance(value, Timestamp):
            return True
        if isinstance(value, dict):
            if _has_times(value.values()):
                return True
        elif isinstance(value, list) and _has_times(value):
            return True
    return False


def _converted(value: object) -> object:
    """Convert the times in a table value to datetimes."""
    if isinstance(value, Timestamp):
        return moment_of(value.seconds) or value
    if isinstance(value, dict):
        return {key: _converted(one) for key, one in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_converted(one) for one in value]
    return value
