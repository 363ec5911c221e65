"""The release of what a connection held, slice after slice, whatever ended it.

Its channels end one after the other, then its exclusive queues are deleted (behaviour 13).

Invariants: it begins once, and after an operation of the client's that is under way; nothing is
delivered to the connection meanwhile.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.task import Work
from leveret.session.channel.channel import Channel
from leveret.session.channel.release import ChannelRelease
from leveret.session.connection_base import ConnectionBase


@final
class ConnectionRelease(Work):
    """Releases what a connection held; `channels` are those that have not ended."""

    def __init__(self, connection: ConnectionBase, channels: list[Channel], answers: bool) -> None:
        """`answers` is True where the client waits for a connection.close-ok."""
        self._connection = connection
        self._before = connection.work
        self._channels = channels
        self._place: i64 = 0
        self._current: ChannelRelease | None = None
        self._answers = answers

    def step(self, steps: i64) -> bool:
        """Release more of it."""
        before = self._before
        if before is not None and not before.over:
            return True
        turn = self._connection.turn
        turn.changes += 1
        last: i64 = turn.steps + steps
        while self._place < len(self._channels):
            current = self._current
            if current is None:
                if turn.steps >= last:
                    return True
                turn.steps += 1
                current = self._current = ChannelRelease(self._channels[self._place])
            if current.advance(last):
                return True
            self._current = None
            self._place += 1
        return self._connection.drop_exclusive(last)

    def ended(self) -> None:
        """Answer the client's close."""
        if self._answers:
            self._connection.answer_close()
        self._connection.holds_nothing()
