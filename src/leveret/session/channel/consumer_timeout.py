"""The time limit for acks: a channel whose oldest delivery waits too long is closed with 406.

Deliveries carry no time: that would cost every one of them.  Instead each look at the clock notes
a mark, the time and the newest delivery tag of a channel; a delivery is as old as the first mark
that has its tag.  So a channel is closed late by as much as marks lie apart: a second, or a 64th of
the shortest timeout where that is longer.

Invariants: marks grow in time and tag; a channel without unacked deliveries has none.

Source: behaviour 64; the text is RabbitMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.session.states import HALT_SYNC

if TYPE_CHECKING:
    from leveret.session.channel.channel import Channel
    from leveret.session.channel.unacked import Unacked
    from leveret.session.connection.connection import Connection

_MARKS_PER_TIMEOUT: Final = 64
_MARKS_APART_MS: Final = 1000


def check_timeouts(connection: Connection, now_ms: i64) -> None:
    """Close the connection's channels that hold a delivery for too long (monotonic ms)."""
    default = connection.settings.consumer_timeout_ms
    shortest: i64 = connection.turn.consumer_timeout_ms_min
    if shortest == 0 or 0 < default < shortest:
        shortest = default
    if shortest == 0 or connection.halted & HALT_SYNC:
        # A reply that waits for a sync belongs to a channel, which must be there still.
        return
    for channel in list(connection.channels.values()):
        if not channel.closing:
            _mark(channel, now_ms, shortest)
            timeout = _exceeded(channel, now_ms, default, shortest)
            if timeout > 0:
                connection.fail_channel(
                    channel,
                    PreconditionFailed(
                        f"delivery acknowledgement on channel {int(channel.number)} timed out. "
                        f"Timeout value used: {int(timeout)} ms. This timeout value can be "
                        "configured, see consumers doc guide to learn more"
                    ),
                )


def _mark(channel: Channel, now_ms: i64, shortest: i64) -> None:
    """Note how far the channel's deliveries have come, and forget what all are past."""
    marks = channel.marks
    oldest = channel.unacked.oldest()
    if oldest is None:
        marks.clear()
        return
    gone: i64 = 0
    for mark in marks:
        if mark[1] >= oldest.tag:
            break
        gone += 1
    del marks[:gone]
    apart: i64 = max(shortest // _MARKS_PER_TIMEOUT, _MARKS_APART_MS)
    if not marks or (channel.delivery_tag > marks[-1][1] and now_ms - marks[-1][0] >= apart):
        marks.append((now_ms, channel.delivery_tag))


def _exceeded(channel: Channel, now_ms: i64, default: i64, shortest: i64) -> i64:
    """Return the timeout that one of the channel's deliveries exceeded, or 0."""
    items = channel.unacked.items
    size: i64 = len(items)
    place: i64 = channel.unacked.head
    marks = channel.marks
    mark: i64 = 0
    while place < size:
        unacked = items[place]
        place += 1
        if unacked.settled:
            continue
        while mark < len(marks) and marks[mark][1] < unacked.tag:
            mark += 1
        if mark == len(marks):
            return 0
        age: i64 = now_ms - marks[mark][0]
        if age < shortest:
            return 0
        timeout = _timeout(unacked, default)
        if 0 < timeout <= age:
            return timeout
    return 0


def _timeout(unacked: Unacked, default: i64) -> i64:
    """Return the timeout of one delivery, 0 for none: its queue's own, else the setting."""
    own = unacked.queue.settings.consumer_timeout_ms
    return default if own < 0 else own
