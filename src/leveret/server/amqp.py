"""The asyncio protocol of a client connection: socket I/O, and backpressure in both directions.

If a peer does not read, output is limited.  Above the high-water mark of the transport's buffer,
deliveries pause.  Above a second mark, the peer's input is not read either, since replies need
buffer space too.

Unexpected exceptions of the session stop the broker (`Runner.broken`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from leveret.limits import LINGER_SECONDS_MAX, OUTPUT_BYTES_HIGH, OUTPUT_BYTES_MAX
from leveret.server.client_socket import ClientSocket
from leveret.server.opening.peer_address import is_loopback
from leveret.session.admission import Slot
from leveret.session.client_session import ClientSession
from leveret.session.settings import Peer, Security

if TYPE_CHECKING:
    from leveret.server.listener import Listener

#: The additional memory of a connection with TLS: OpenSSL's state, and buffers in both directions.
_TLS_CONNECTION_BYTES: Final = 130_000


#: The maximum size of one write to the transport, so that no write blocks the event loop.  The
#: output for a full read is slightly longer than the read and fits into one write, because a short
#: second write would wake the peer again.
WRITE_BYTES_MAX = 327_680

#: A read of at least this size may have left more data in the socket.  uvloop reads up to 256,000
#: bytes, and reads again at once after a full read; asyncio's own loop reads once.
FULL_READ_BYTES = 131_072


#: Takes the level, the connection and the text of a log line.
Log = Callable[[str, ClientSession, str], None]


#: A placeholder until the event loop provides a transport; all its methods raise.
_NO_TRANSPORT: Final = asyncio.Transport()


class ClientProtocol(asyncio.Protocol, ClientSocket):
    """The protocol of one client connection; its session begins in `connection_made`."""

    def __init__(self, listener: Listener, network: str) -> None:
        self._listener = listener
        self.slot = Slot(network, self.expel, self._is_authenticated, self._is_authenticating)
        self._transport = _NO_TRANSPORT
        self._session: ClientSession | None = None
        self._expelled = False
        self._runner = listener.runner
        self._full = False
        #: True if parts of output are joined, because TLS makes a record of each part.
        self._joins = False
        self._reading = True
        self._closing = False
        #: The time at which the session finished with unwritten output (monotonic ms), or 0.
        self._finished_ms = 0
        #: Output that does not fit into the transport's buffer.
        self._waiting: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        #: The unsent bytes last reported to the session's account.
        self._unsent = 0
        #: Checks the login at its time limit, because the tick may be a second late.
        self._opening: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session of a new connection."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_BYTES_HIGH)
        try:
            self._begin(transport)
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
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
            self._joins = True
            connection.account.book(_TLS_CONNECTION_BYTES)
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
        """Return whether the client has logged in and opened a vhost."""
        return self._session is not None and self._session.is_authenticated()

    def _is_authenticating(self) -> bool:
        """Return whether the client's password is being verified, or was accepted."""
        return self._session is not None and self._session.is_authenticating()

    def expel(self) -> None:
        """Close this connection, which has not logged in, to free its slot for another."""
        self._expelled = True
        if self._session is not None:
            self._listener.expelled(self._session)
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Pass input to the session, and run the effects of the core."""
        connection = self._session
        assert connection is not None
        insists = connection.halted != 0 or len(data) >= FULL_READ_BYTES
        try:
            connection.receive(data, self._runner.now())
            self._runner.run()
            self._judge_reading(insists)
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
            self._runner.broken(bug)

    def eof_received(self) -> None:
        """Close the connection after EOF from the peer, which has the usual time to read the rest.

        By itself, the event loop would send the rest without a time limit, and could not be
        stopped.
        """
        # Further deliveries would not be sent.
        self.pause_writing()
        self._close()

    def pause_writing(self) -> None:
        """Pause delivery because the transport's write buffer is full."""
        self._full = True
        try:
            self.connection.flushed(True)
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
            self._runner.broken(bug)

    def resume_writing(self) -> None:
        """Resume delivery because the transport's write buffer has room again."""
        self._full = False
        try:
            self._go_on()
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
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
        """Write the session's output, as much as the transport's buffer has room for."""
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
        """Write waiting output until the transport is full, since some copy their whole buffer."""
        waiting = self._waiting
        while waiting and not self._full:
            if len(waiting) == 1 and len(waiting[0]) <= WRITE_BYTES_MAX:
                self._waiting_bytes = 0
                self._transport.write(waiting.popleft())
            else:
                # One system call for the frames of large bodies, which are parts of their own.
                parts = self._take_waiting()
                if self._joins:
                    self._transport.write(b"".join(parts))
                else:
                    self._transport.writelines(parts)

    def _take_waiting(self) -> list[bytes | memoryview]:
        """Remove and return the waiting output, up to the size of one write."""
        waiting = self._waiting
        taken: list[bytes | memoryview] = []
        room = WRITE_BYTES_MAX
        while waiting and room > 0:
            part = waiting.popleft()
            if len(part) > room:
                view = memoryview(part)
                waiting.appendleft(view[room:])
                part = view[:room]
            taken.append(part)
            room -= len(part)
        self._waiting_bytes -= WRITE_BYTES_MAX - room
        return taken

    def _judge_reading(self, insists: bool = False) -> None:
        """Pause reading if the session has enough input or the peer does not read; else resume it.

        If the session waits to be scheduled, `insists` decides.  It is set if the peer has sent
        more since then or filled a read.  Reading then pauses, because an event loop that reads as
        long as the socket has data would starve the other connections.  Otherwise reading
        continues, because most peers have sent everything by then, and a pause would cost two
        system calls.
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
        """Check time limits, and account for output sent since the last tick.

        `now_ms` is the monotonic time.
        """
        self.connection.tick(now_ms)
        if self._closing:
            return
        if self.connection.finished:
            if self._finished_ms and now_ms - self._finished_ms > LINGER_SECONDS_MAX * 1000:
                # The peer does not read the rest of the output.
                self.abort()
        elif self._unsent:
            self._judge_reading()

    def _check_opening(self) -> None:
        """Close a session that did not open within its time limit.

        After a suspension of the process the session has more time, and the tick closes it.
        """
        self._opening = None
        connection = self._session
        assert connection is not None
        try:
            if not connection.is_authenticated():
                self.tick(self._runner.now())
                self._runner.run()
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
            self._runner.broken(bug)

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, and discard unsent output."""
        self._closing = True
        self._waiting.clear()
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the session and release the slot of the connection."""
        try:
            self._release()
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
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
