"""Sends heartbeats, and ends the connection of a silent peer.

Times are monotonic milliseconds of a clock that stops while the process is suspended
(`LivedClock`).  Two silent intervals end a connection, but only after the shell has read its socket
once more, because bytes that have arrived there are a sign of life.

Source: AMQP 0-9-1 section 4.2.7 and behaviour 8 (any traffic counts as a heartbeat).
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
        #: The negotiated interval; 0 for no heartbeats.
        self.interval_ms: i64 = 0
        #: When the last bytes were received and sent (monotonic ms).
        self.input_ms: i64 = connection.now_ms
        self.output_ms: i64 = connection.now_ms
        #: False while the shell does not read the socket, so that silence means nothing.
        self._reading = True
        #: True once the peer seems silent, until bytes arrive.
        self._suspected = False

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Measure the peer's silence from `now_ms` on, but only while the shell is reading."""
        self._reading = reading
        self.input_ms = now_ms

    def tick(self, now_ms: i64) -> None:
        """Send a heartbeat if one is due, and end the connection of a silent peer."""
        if self.interval_ms == 0:
            return
        connection = self._connection
        if now_ms - self.output_ms >= self.interval_ms // 2:
            self.send()
        if connection.halted != 0 or not self._reading:
            # Nothing is read, so silence means nothing.  Measure it from now.
            self.input_ms = now_ms
            self._suspected = False
        elif now_ms - self.input_ms <= self.interval_ms * 2:
            self._suspected = False
        elif not self._suspected:
            # Before the next tick, the shell reads bytes that have arrived.
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
