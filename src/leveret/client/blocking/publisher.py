"""Bulk publishing of encoded messages, with a bounded window of unconfirmed messages.

A `BulkPublisher` opens a channel in confirm mode.  Its caller passes the encoded bytes of many
publishes at once (`publish_frames`) and finally waits until all are confirmed.

Invariants: at most `window` messages are unconfirmed (or one batch, if it is larger); nothing is
sent while the broker blocks publishers; it is an error if no confirm arrives for `timeout_ms`
although messages are unconfirmed and the broker does not block publishers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leveret.client.errors import ConnectionLost, Nacked
from leveret.client.shell.channel import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.blocking.channel import Channel
    from leveret.client.blocking.connection import Connection
    from leveret.client.message import ReturnedMessage


class BulkPublisher:
    """A channel of `connection` that publishes encoded messages and counts their confirms."""

    def __init__(self, connection: Connection, window: int, timeout_ms: int) -> None:
        self.channel: Channel = connection.channel()
        self.channel.confirm_select()
        self._connection = connection
        self._tally = self.channel.session.tally()
        self._window = window
        self._timeout = timeout_ms / 1000

    @property
    def published_count(self) -> int:
        """The number of messages sent; also the sequence of the last one."""
        return self._tally.last

    @property
    def lowest_unconfirmed(self) -> int:
        """The lowest unconfirmed sequence; all lower sequences are settled."""
        return self._tally.lowest

    def send(self, frames: bytes, count: int) -> None:
        """Send `count` messages as soon as the window has room for them.

        Raises: Nacked when the broker nacked one; ConnectionLost when no confirm arrives for too
        long; the channel's error.
        """
        with self._connection.one_thread:
            self._wait(lambda: self._has_room(count))
            self.channel.session.publish_encoded(frames, count)
            self._connection.flush()
            self._connection.read_what_came()
            self.check()

    def wait_until_confirmed(self) -> None:
        """Wait until every message sent is confirmed.  Raises: as `send`."""
        self._wait(lambda: self._tally.unconfirmed == 0)

    def take_returned(self) -> list[ReturnedMessage]:
        """Return messages returned since the last call; complete after `wait_until_confirmed`."""
        return self._tally.take_returned()

    def check(self) -> None:
        """Raise the first error so far.  Raises: Nacked; the channel's error."""
        if self._tally.nack_count > 0:
            raise Nacked([self._tally.first_nack])
        self.channel.session.check_open()

    def _has_room(self, count: int) -> bool:
        """Return whether `count` messages may be sent now."""
        waiting = self._tally.unconfirmed
        return self.channel.may_publish and (waiting == 0 or waiting + count <= self._window)

    def _wait(self, done: Callable[[], bool]) -> None:
        """Wait for `done`, as long as confirms arrive or the broker blocks publishers."""
        self.check()
        while not done():
            # A wait that was blocked for part of its time gets another full timeout.
            publishable = self.channel.may_publish
            if self._moves(done):
                continue
            if not self.channel.may_publish:
                reason = self._connection.blocked_reason or "channel.flow"
                log.warning("the broker blocks publishers for now: %s", reason)
            elif publishable:
                raise ConnectionLost(
                    f"the broker confirmed nothing for {self._timeout:.0f} s; "
                    f"{self._tally.unconfirmed} messages await their confirm"
                )

    def _moves(self, done: Callable[[], bool]) -> bool:
        """Wait for `done` or another confirm; return False after the timeout."""
        waiting = self._tally.unconfirmed
        moved = self._connection.run_until(
            lambda: done() or self._is_over or self._tally.unconfirmed < waiting,
            time.monotonic() + self._timeout,
        )
        self.check()
        return moved

    @property
    def _is_over(self) -> bool:
        """Whether the channel is closed or a message was nacked."""
        return not self.channel.is_open or self._tally.nack_count > 0
