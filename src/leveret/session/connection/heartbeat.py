"""What a connection does about time: heartbeats, the handshake's end, late acks, a lost peer.

The shell calls `tick` about once a second; times are monotonic milliseconds of a clock that stands
still while the process does (`LivedClock`).
Source: AMQP 0-9-1 section 4.2.7 and behaviour 8; two silent intervals end a connection, but not
before the shell had another look at its socket: what has arrived there is a sign of life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.session.channel.consumer_timeout import check_timeouts
from leveret.session.states import CLOSING, HALT_REFUSED, OPEN
from leveret.wire.frames import write_heartbeat

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection

#: How long a peer may take for its close-ok.
CLOSE_OK_MS: Final = 10_000


def tick(connection: Connection, now_ms: i64) -> None:
    """Look at the clock."""
    connection.now_ms = now_ms
    if connection.state == CLOSING:
        if now_ms - connection.closing_ms >= CLOSE_OK_MS:
            connection.finish()
    elif connection.state < OPEN:
        _tick_handshake(connection, now_ms)
    elif connection.state == OPEN:
        check_timeouts(connection, now_ms)
        if connection.heartbeat_ms > 0:
            _tick_heartbeat(connection, now_ms)


def _tick_handshake(connection: Connection, now_ms: i64) -> None:
    if connection.halted & HALT_REFUSED:
        if now_ms - connection.closing_ms >= connection.refusal_ms:
            connection.tell_refusal()
    elif now_ms - connection.connected_ms >= connection.settings.handshake_ms:
        connection.log.append(("warning", "handshake timeout"))
        connection.finish()


def _tick_heartbeat(connection: Connection, now_ms: i64) -> None:
    if now_ms - connection.output_ms >= connection.heartbeat_ms // 2:
        write_heartbeat(connection.out)
        connection.wake()
    if connection.halted != 0 or not connection.reading:
        # While the socket is not read silence means nothing; afterwards it is counted from here.
        connection.input_ms = now_ms
        connection.suspected = False
    elif now_ms - connection.input_ms <= connection.heartbeat_ms * 2:
        connection.suspected = False
    elif not connection.suspected:
        # Between this tick and the next one the shell reads what there is.
        connection.suspected = True
    else:
        seconds = int(connection.heartbeat_ms) // 1000
        connection.log.append(("error", f"missed heartbeats from client, timeout: {seconds}s"))
        connection.release()
        connection.finish()


def woke(connection: Connection) -> None:
    """Send a heartbeat at once: the peer may have waited for one as long as it will."""
    if connection.state == OPEN and connection.heartbeat_ms > 0:
        write_heartbeat(connection.out)
        connection.wake()
