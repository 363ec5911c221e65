"""The priority level of a message in a queue, and its encoding in a chunk's row.

A queue with `x-max-priority` has levels from 0 to that number, and 0 for messages without a
priority.  A quorum queue has the STRICT levels: 0 to 31, and 4 for messages without a priority.
Until a message with a level other than 4 arrives, it has no levels, and its rows contain 0.  So in
its rows 0 means level 4, and any other number means that number less one.

Source: RabbitMQ 4.3's quorum queues.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.message import Message
from leveret.wire.properties import property_priority

#: The `levels` of a quorum queue, a value above the maximum of `x-max-priority`.
STRICT: Final = 256

#: The highest level of a quorum queue, and the level of messages without a priority.
_HIGHEST: Final = 31
_USUAL: Final = 4

#: The flag of the property `priority` in the first byte of the property flags.
PRIORITY_FLAG: Final = 0x08


def highest_level(levels: i64) -> i64:
    """Return the highest level of a queue with these levels."""
    return _HIGHEST if levels == STRICT else levels


def level_of(message: Message, levels: i64) -> i64:
    """Return a message's level in a queue with these levels, or 0 if the queue has none."""
    if levels <= 0:
        return 0
    without: i64 = _USUAL if levels == STRICT else 0
    if message.properties[0] & PRIORITY_FLAG == 0:
        return without
    priority = property_priority(message.properties)
    return without if priority is None else min(i64(priority), highest_level(levels))


def is_usual(message: Message) -> bool:
    """Return whether a message has level 4 in a quorum queue, like one without a priority."""
    return level_of(message, STRICT) == _USUAL


def stored_level(message: Message, levels: i64) -> i64:
    """Return a message's level as stored in a chunk's row."""
    level = level_of(message, levels)
    return level + 1 if levels == STRICT else level


def level_in(row: i64, levels: i64) -> i64:
    """Return the level for the value stored in a chunk's row."""
    if levels != STRICT:
        return row
    return _USUAL if row == 0 else row - 1
