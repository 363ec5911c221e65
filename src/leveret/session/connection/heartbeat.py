"""Heartbeats: those that are sent, and what the silence of a peer means.

Times are monotonic milliseconds of a clock that stands still while the process does
(`LivedClock`).
Source: AMQP 0-9-1 section 4.2.7 and behaviour 8; two silent intervals end a connection, but not
before the shell had another look at its socket: what has arrived there is a sign of life.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.session.connection_base import ConnectionBase
from leveret.wire.frames import write_heartbeat


@final
class Heartbeat:
    """The heartbeats of one connection, both ways."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: What was negotiated; 0 for none.
        self.interval_ms: i64 = 0
        #: When the last bytes were received and sent (monotonic ms).
        self.input_ms: i64 = connection.now_ms
        self.output_ms: i64 = connection.now_ms
        #: False while the shell does not read the socket: silence means nothing then.
        self._reading = True
        #: True once the peer seems silent, until it is read from again.
        self._suspected = False

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Note whether the shell reads the socket from now on; silence is counted from here."""
        self._reading = reading
        self.input_ms = now_ms

    def tick(self, now_ms: i64) -> None:
        """Send a heartbeat where one is due, and end the connection of a peer that is silent."""
        if self.interval_ms == 0:
            return
        connection = self._connection
        if now_ms - self.output_ms >= self.interval_ms // 2:
            self.send()
        if connection.halted != 0 or not self._reading:
            # Unread, silence means nothing; afterwards it is counted from here.
            self.input_ms = now_ms
            self._suspected = False
        elif now_ms - self.input_ms <= self.interval_ms * 2:
            self._suspected = False
        elif not self._suspected:
            # Between this tick and the next one the shell reads what there is.
            self._suspected = True
        else:
            seconds = int(self.interval_ms) // 1000
            connection.log.append(("error", f"missed heartbeats from client, timeout: {seconds}s"))
            connection.finish()

    def send(self) -> None:
        """Send a heartbeat now, if any were negotiated."""
        if self.interval_ms > 0:
            write_heartbeat(self._connection.output.writer)
            self._connection.wake()
