"""The property priority, and the level that it gives a message in a priority queue."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.message import Message
from leveret.wire.properties import property_priority

#: The flag of the property `priority` in the first byte of the property flags.
_PRIORITY_FLAG: Final = 0x08


def priority_of(message: Message) -> i64:
    """Return a message's priority; 0 where it has none."""
    if message.properties[0] & _PRIORITY_FLAG == 0:
        return 0
    priority = property_priority(message.properties)
    return priority if priority is not None else 0


def level_of(message: Message, priority_max: i64) -> i64:
    """Return a message's level in a queue of that `x-max-priority`; 0 in one without."""
    return min(priority_of(message), priority_max) if priority_max > 0 else 0
