"""The timer of one connection for the time limits for acks.

Invariant: while a delivery can exceed its limit, the timer is set to no later than that moment.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.session.channel.channel import Channel
from leveret.session.channel.consumer_timeout import limit_of, timed_out
from leveret.session.connection_base import ConnectionBase
from leveret.session.states import HALT_SYNC, HALT_TURN, HALT_WORK

#: The time of deliveries is noted at most so often within the shortest limit, and at most once in
#: so many ms.
_NOTES_PER_LIMIT: Final = 64
_NOTES_APART_MS: Final = 10

#: Deliveries of all channels that one check goes through, and how many of them delay the next check
#: by a ms: a limit of 1 ms of one consumer must not have all others' deliveries checked in each ms.
_LOOKED_AT: Final = 16_384
_LOOKED_AT_PER_MS: Final = 32


@final
class AckClock(Timed):
    """Ends the consumers of one connection that are late with an ack."""

    def __init__(self, connection: ConnectionBase, channels: dict[i64, Channel]) -> None:
        super().__init__()
        self._connection: Final = connection
        self._channels: Final = channels
        self._noted_ms: i64 = 0
        #: Where the next look begins among the channels, and when at the earliest.
        self._first: i64 = 0
        self._following_ms: i64 = 0

    def delivered(self) -> None:
        """Note that deliveries were written: now, or later if the last note is too recent."""
        core = self._connection.core
        following = self._noted_ms + self._apart()
        if core.now_ms >= following or core.now_ms == self._noted_ms:
            self._note(core.now_ms)
            self._set(core.now_ms + core.consumer_timeout_ms_min)
        else:
            self._set(following)

    def _apart(self) -> i64:
        limit: i64 = self._connection.core.consumer_timeout_ms_min
        return max(limit // _NOTES_PER_LIMIT, _NOTES_APART_MS)

    def _note(self, now_ms: i64) -> None:
        self._noted_ms = now_ms
        channels = self._channels
        self._connection.scheduler.spent += len(channels) >> 3
        for channel in channels.values():
            channel.consumer_timeout.note(channel.delivery_tag, now_ms)

    def _set(self, time_ms: i64) -> None:
        """Set the timer to `time_ms`, unless it fires before that."""
        if self.deadline_ms == NO_DEADLINE or time_ms < self.deadline_ms:
            self._connection.core.timers.set(self, time_ms)

    def due(self, now_ms: i64) -> None:
        """Note the deliveries so far, and end the consumers whose acks are late."""
        shortest: i64 = self._connection.core.consumer_timeout_ms_min
        if shortest == 0:
            return
        if now_ms >= self._noted_ms + self._apart():
            self._note(now_ms)
        if now_ms < self._following_ms:
            self._set(self._following_ms)
            return
        channels = list(self._channels.values())
        size: i64 = len(channels)
        place: i64 = min(self._first, size)
        left: i64 = _LOOKED_AT
        while place < size and left > 0:
            if self._connection.halted & (HALT_SYNC | HALT_WORK | HALT_TURN):
                # A reply that waits belongs to a channel, which must not close before it.
                self._set(now_ms + self._apart())
                break
            left -= self._look(channels[place], now_ms, shortest, left)
            if left > 0:
                place += 1
        self._first = place if place < size else 0
        self._connection.scheduler.spent += (_LOOKED_AT - left) // LOOKS_PER_COST
        self._following_ms = now_ms + (_LOOKED_AT - left) // _LOOKED_AT_PER_MS
        if left <= 0:
            self._set(self._following_ms)

    def _look(self, channel: Channel, now_ms: i64, shortest: i64, most: i64) -> i64:
        """End the late consumers of a channel; return how many deliveries were looked at."""
        if channel.closing:
            return 0
        connection = self._connection
        default = connection.settings.consumer_timeout_ms
        limits = channel.consumer_timeout
        late = limits.late(now_ms, default, shortest, most)
        if limits.next_ms != NO_DEADLINE:
            self._set(limits.next_ms)
        fatal = channel.time_out(late) if late else None
        if fatal is not None:
            error = timed_out(channel.number, limit_of(fatal, default))
            connection.fail_channel(channel.number, error)
        return limits.looked_at

    def end(self) -> None:
        """Stop the timer: the connection has ended."""
        self._connection.core.timers.cancel(self)
