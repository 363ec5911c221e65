"""The level of a message in a queue with priorities, and how a chunk's row stores it.

A queue with `x-max-priority` has levels from 0 to that; a message without a priority has level 0.
A quorum queue has the STRICT levels: 0 to 31, and 4 for a message without a priority.  It keeps no
levels until a message of another one comes, and its rows hold 0 until then.  So 0 stands for level
4 in its rows, and any other number for the level one less.

Source: RabbitMQ 4.3's quorum queues.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.message import Message
from leveret.wire.properties import property_priority

#: The levels of a quorum queue; no `x-max-priority` is as high.
STRICT: Final = 256

#: The highest of these levels, and the level of a message without a priority.
_HIGHEST: Final = 31
_USUAL: Final = 4

#: The flag of the property `priority` in the first byte of the property flags.
PRIORITY_FLAG: Final = 0x08


def highest_level(levels: i64) -> i64:
    """Return the highest of `levels`, as a queue has them."""
    return _HIGHEST if levels == STRICT else levels


def level_of(message: Message, levels: i64) -> i64:
    """Return a message's level in a queue with these levels; 0 if it has none."""
    if levels <= 0:
        return 0
    without: i64 = _USUAL if levels == STRICT else 0
    if message.properties[0] & PRIORITY_FLAG == 0:
        return without
    priority = property_priority(message.properties)
    return without if priority is None else min(i64(priority), highest_level(levels))


def is_usual(message: Message) -> bool:
    """Return whether a message has the level 4 of a quorum queue, like one without a priority."""
    return level_of(message, STRICT) == _USUAL


def stored_level(message: Message, levels: i64) -> i64:
    """Return a message's level as a chunk's row stores it."""
    level = level_of(message, levels)
    return level + 1 if levels == STRICT else level


def level_in(row: i64, levels: i64) -> i64:
    """Return the level that a chunk's row stands for."""
    if levels != STRICT:
        return row
    return _USUAL if row == 0 else row - 1
