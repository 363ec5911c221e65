"""The timer of one connection for the ack time limits of its deliveries.

Invariant: while any delivery can exceed its limit, the timer is set to that time or earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.broker.scheduler.task import Task
from leveret.broker.scheduler.timers import Timed
from leveret.clock import NO_DEADLINE
from leveret.session.channel.channel import Channel
from leveret.session.channel.consumer_timeout import limit_of, timed_out
from leveret.session.connection_base import ConnectionBase
from leveret.session.states import HALT_SYNC, HALT_TURN, HALT_WORK

#: The delivery time is noted at most this often within the shortest limit, and at most once per
#: `_NOTES_APART_MS`.
_NOTES_PER_LIMIT: Final = 64
_NOTES_APART_MS: Final = 10

#: A check delays the next one by 1 ms for this many deliveries that it examined, so that one
#: consumer's limit of 1 ms does not cause all other deliveries to be checked every ms.
_LOOKED_AT_PER_MS: Final = 32


@final
class AckClock(Timed):
    """Cancels the consumers of one connection whose acks are late."""

    def __init__(self, connection: ConnectionBase, channels: dict[i64, Channel]) -> None:
        super().__init__()
        self._connection: Final = connection
        self._channels: Final = channels
        self._noted_ms: i64 = 0
        #: The last check, and the earliest time of the next one.
        self._last_check: Task | None = None
        self._following_ms: i64 = 0

    def delivered(self) -> None:
        """Note the time of new deliveries, now, or later if the last note is too recent."""
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
        """Note the deliveries so far, and cancel the consumers whose acks are late."""
        shortest: i64 = self._connection.core.consumer_timeout_ms_min
        if shortest == 0:
            return
        if now_ms >= self._noted_ms + self._apart():
            self._note(now_ms)
        if now_ms < self._following_ms:
            self._set(self._following_ms)
        elif self._last_check is None or self._last_check.over:
            scheduler = self._connection.scheduler
            self._last_check = scheduler.start(self._check(now_ms, shortest))

    def _check(self, now_ms: i64, shortest: i64) -> Iterator[int]:
        """Cancel the late consumers of each channel."""
        connection = self._connection
        default = connection.settings.consumer_timeout_ms
        self._following_ms = now_ms
        for channel in list(self._channels.values()):
            limits = channel.consumer_timeout
            for late, looked in limits.check(now_ms, default, shortest):
                if channel.closing:
                    break
                if late and connection.halted & (HALT_SYNC | HALT_WORK | HALT_TURN):
                    # Try again later: a waiting reply must be sent before its channel closes.
                    self._set(connection.core.now_ms + self._apart())
                    return
                self._following_ms += looked // _LOOKED_AT_PER_MS
                fatal = channel.time_out(late) if late else None
                if fatal is not None:
                    error = timed_out(channel.number, limit_of(fatal, default))
                    connection.fail_channel(channel.number, error)
                yield looked // LOOKS_PER_COST
            if limits.next_ms != NO_DEADLINE and not channel.closing:
                self._set(limits.next_ms)

    def end(self) -> None:
        """Stop the timer when the connection ends."""
        self._connection.core.timers.cancel(self)
