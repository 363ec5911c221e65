"""The asyncio shell around one client's session: bytes to and fro, backpressure both ways.

A peer that does not read is not fed: the transport's buffer is bounded by asking the core for no
more while it is above its mark, and above a second mark the peer's input is not read either, since
replies need room too.

What the session did not expect and could not answer by a close comes out of it as it is, and stops
the broker (`Runner.broken`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from leveret.limits import (
    LINGER_SECONDS_MAX,
    OUTPUT_BYTES_HIGH,
    OUTPUT_BYTES_MAX,
    TLS_CONNECTION_BYTES,
)
from leveret.server.client_socket import ClientSocket
from leveret.server.opening.peer_address import is_loopback
from leveret.session.admission import Slot
from leveret.session.client_session import ClientSession
from leveret.session.settings import Peer, Security

if TYPE_CHECKING:
    from leveret.server.listener import Listener

#: One write to the transport is at most this long, so that no call holds the loop.
WRITE_BYTES_MAX = 262_144

#: A read of so much may have left more in the socket.  uvloop reads up to 256,000 bytes, and again
#: at once where it got as many; asyncio's own loop reads once.
FULL_READ_BYTES = 131_072


#: Takes the level of a line for the log, the connection that it is about, and its text.
Log = Callable[[str, ClientSession, str], None]


#: Stands for the transport until the loop hands one over; whatever is asked of it raises.
_NO_TRANSPORT: Final = asyncio.Transport()


class ClientProtocol(asyncio.Protocol, ClientSocket):
    """One connection's socket; its session begins when the loop hands the transport over."""

    def __init__(self, listener: Listener, network: str) -> None:
        self._listener = listener
        self.slot = Slot(network, self.expel, self._is_authenticated, self._is_authenticating)
        self._transport = _NO_TRANSPORT
        self._session: ClientSession | None = None
        self._expelled = False
        self._runner = listener.runner
        self._full = False
        self._reading = True
        self._closing = False
        #: When the session finished with output that the transport had no room for (monotonic ms).
        self._finished_ms = 0
        #: Output for which the transport had no room.
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        #: What was not sent when the session heard of it last.
        self._unsent = 0
        #: Looks at the clock when the session has to be open; the tick may be a second late.
        self._opening: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session of a new connection."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_BYTES_HIGH)
        try:
            self._begin(transport)
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def _begin(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        local = transport.get_extra_info("sockname") or ("unknown", 0)
        host = str(peer[0])
        tls = transport.get_extra_info("ssl_object")
        name = transport.get_extra_info("certificate_name") if tls is not None else ""
        facts = (tls.version() or "", (tls.cipher() or ("",))[0]) if tls is not None else ("", "")
        connection = self._session = self._listener.connect(
            Peer(
                host,
                int(peer[1]),
                str(local[0]),
                int(local[1]),
                is_loopback(host),
                Security(*facts, name),
            )
        )
        if tls is not None:
            connection.account.book(TLS_CONNECTION_BYTES)
        self._runner.add(connection, self)
        if (opening_ms := self._listener.opening_ms()) > 0:
            # Both clocks count in whole milliseconds.
            seconds = (opening_ms + 2) / 1000
            self._opening = asyncio.get_running_loop().call_later(seconds, self._check_opening)
        self._listener.log("info", connection, f"accepting {self._listener.speaks} connection")
        if self._expelled:
            self.abort()
        elif connection.finished:
            self._runner.run()

    @property
    def connection(self) -> ClientSession:
        """The session, once the socket is open."""
        assert self._session is not None
        return self._session

    def _is_authenticated(self) -> bool:
        """Tell whether the client has logged in and entered a vhost."""
        return self._session is not None and self._session.is_authenticated()

    def _is_authenticating(self) -> bool:
        """Tell whether the client's password is being verified, or was right."""
        return self._session is not None and self._session.is_authenticating()

    def expel(self) -> None:
        """Leave the place to another connection: this one has not logged in."""
        self._expelled = True
        if self._session is not None:
            self._listener.expelled(self._session)
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Feed the session, then do what the core noted."""
        connection = self._session
        assert connection is not None
        insists = connection.halted != 0 or len(data) >= FULL_READ_BYTES
        try:
            connection.receive(data, self._runner.now())
            self._runner.run()
            self._judge_reading(insists)
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def eof_received(self) -> None:
        """End with a peer that has ended its side: it has as long as a closed one to read the rest.

        The loop would send the rest to it however long that takes, and nothing could end that.
        """
        # Nothing more is delivered: it would not be sent.
        self.pause_writing()
        self._close()

    def pause_writing(self) -> None:
        """Hear that the transport holds more than it should."""
        self._full = True
        try:
            self.connection.flushed(True)
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def resume_writing(self) -> None:
        """Hear that the transport has room again."""
        self._full = False
        try:
            self._go_on()
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def _go_on(self) -> None:
        self._write_on()
        if self._full:
            return
        if self.connection.finished:
            self._close()
            return
        self.connection.flushed(False)
        self._runner.run()
        self._judge_reading()

    def flush(self) -> None:
        """Send what the session has written, as far as the transport has room."""
        connection = self._session
        assert connection is not None
        for part in connection.take_output():
            self._waiting.append(part)
            self._waiting_bytes += len(part)
        self._write_on()
        if connection.log:
            for level, text in connection.log:
                self._listener.log(level, connection, text)
            connection.log.clear()
        if connection.finished:
            if not self._waiting:
                self._close()
            elif self._finished_ms == 0:
                self._finished_ms = self._runner.now()
        else:
            connection.flushed(self._full)
            self._judge_reading()

    def _write_on(self) -> None:
        """Write what waits until the transport is full: some transports copy what they keep."""
        waiting = self._waiting
        while waiting and not self._full:
            part = waiting.popleft()
            if len(part) > WRITE_BYTES_MAX:
                view = memoryview(part)
                waiting.appendleft(view[WRITE_BYTES_MAX:])
                part = view[:WRITE_BYTES_MAX]
            self._waiting_bytes -= len(part)
            self._transport.write(part)

    def _judge_reading(self, insists: bool = False) -> None:
        """Read the socket unless the session has enough in hand, or its peer does not read.

        One who waits for a turn and `insists`, because he has sent more meanwhile or filled a read,
        is not read before it: a loop that reads again and again as long as the socket has more
        would otherwise let nobody else in between.  Most have sent all that they have by then, and
        to stop reading for the moment until their turn would take two system calls.
        """
        connection = self._session
        assert connection is not None
        insists = insists or not self._reading
        held = connection.halted and (
            (insists and connection.waits_for_turn()) or not connection.reads_on()
        )
        unsent = self._transport.get_write_buffer_size() + self._waiting_bytes
        if unsent != self._unsent:
            self._unsent = unsent
            connection.account.hold_output(unsent)
        blocked = self._full and unsent > OUTPUT_BYTES_MAX
        reading = not (held or blocked)
        if reading != self._reading and not self._closing:
            self._reading = reading
            connection.set_reading(reading, self._runner.now())
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def tick(self, now_ms: int) -> None:
        """Look at the clock (monotonic ms), and at what the transport has sent meanwhile."""
        self.connection.tick(now_ms)
        if self._closing:
            return
        if self.connection.finished:
            if self._finished_ms and now_ms - self._finished_ms > LINGER_SECONDS_MAX * 1000:
                # The peer does not read, so the rest of the output would never leave.
                self.abort()
        elif self._unsent:
            self._judge_reading()

    def _check_opening(self) -> None:
        """Look at the clock for a session that is not open when it has to be.

        After a pause of the process it has more time, and the tick judges it.
        """
        self._opening = None
        connection = self._session
        assert connection is not None
        try:
            if not connection.is_authenticated():
                self.tick(self._runner.now())
                self._runner.run()
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        """Drop the socket with what waits in it."""
        self._closing = True
        self._waiting.clear()
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        try:
            self._release()
        except Exception as bug:  # noqa: BLE001 (else the loop would end the connection alone)
            self._runner.broken(bug)

    def _release(self) -> None:
        self._waiting.clear()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        connection = self.connection
        connection.lost()
        for level, text in connection.log:
            self._listener.log(level, connection, text)
        connection.log.clear()
        self._listener.log("info", connection, f"closed {self._listener.speaks} connection")
        self._listener.admission.leave(self.slot)
        self._runner.remove(connection)
        self._runner.run()
