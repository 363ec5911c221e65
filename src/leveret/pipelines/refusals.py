"""Checks of options, with errors that name the allowed values.

Every job checks its options before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_UNIT_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SPAN: Final = re.compile(r"(\d{1,9}) *(second|minute|hour|day|week)s?")


class JobError(ValueError):
    """An argument of a job is invalid; the text names the option and the allowed values."""


def one_of(option: str, value: str, known: Sequence[str]) -> str:
    """Return `value` if it is one of the known values.  Raises: JobError."""
    if value not in known:
        raise JobError(f"{option}: {value!r} is none of {', '.join(known)}")
    return value


def at_least(option: str, value: int, least: int) -> int:
    """Return `value` if it is not less than `least`.  Raises: JobError."""
    if value < least:
        raise JobError(f"{option}: {value} is less than {least}")
    return value


def only_one(**given: object) -> str:
    """Return the name of the only option that is not None.  Raises: JobError."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        said = f"not {' and '.join(names)}" if names else "none was given"
        raise JobError(f"exactly one of {', '.join(given)} is needed; {said}")
    return names[0]


def span_seconds(option: str, text: str) -> int:
    """Return a span, such as `1 minute` or `6 hours`, in seconds.  Raises: JobError."""
    found = _SPAN.fullmatch(text.strip().lower())
    seconds = int(found[1]) * _UNIT_SECONDS[found[2]] if found else 0
    if seconds == 0:
        units = ", ".join(_UNIT_SECONDS)
        raise JobError(f"{option}: {text!r} is not a span: a number and one of {units}")
    return seconds


def moment(option: str, value: str | datetime | None) -> datetime | None:
    """Return a moment, given as such or in ISO 8601, in UTC.  Raises: JobError.

    A moment without a time zone is in UTC.
    """
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        # The conversion to UTC can exceed the range of dates.
        raise JobError(
            f"{option}: {value!r} is not a moment such as 2026-11-21T05:40:00Z"
        ) from None
