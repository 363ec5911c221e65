"""One HTTP connection on TCP, whose peer may be slow or hostile.

It ends when no request comes whole in time (which a peer can delay a byte at a time), when a peer
does not read what was written to it, and at once where there are too many.  Loads the framework.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from aiohttp import web

from leveret.limits import HTTP_CONNECTIONS_MAX, HTTP_IDLE_SECONDS_MAX, HTTP_STALL_SECONDS_MAX
from leveret.management.http_log import Log, make_logger
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import write_method
from leveret.wire.methods.connection import ConnectionClose

#: Linger for no time: the peer gets a reset.
_RESET: Final = struct.pack("ii", 1, 0)


def _wrong_port() -> bytes:
    """Return the connection.close that a client of AMQP is sent: its user reads the text."""
    text = "CONNECTION_FORCED - this port speaks HTTP; AMQP is on another, 5672 unless set"
    writer = BytesWriter()
    write_method(writer, 0, ConnectionClose(320, text, 0, 0))
    return writer.getvalue()


class HttpConnections:
    """The connections of one listener."""

    def __init__(
        self,
        server: web.Server,
        connections_max: int = HTTP_CONNECTIONS_MAX,
        idle_seconds: float = HTTP_IDLE_SECONDS_MAX,
        stall_seconds: float = HTTP_STALL_SECONDS_MAX,
        log: Log = lambda _level, _text: None,
    ) -> None:
        self.server = server
        self.log = log
        self.logger = make_logger(log)
        self.connections_max = connections_max
        self.idle_seconds = idle_seconds
        self.stall_seconds = stall_seconds
        self.open: set[HttpConnection] = set()

    def __call__(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        return HttpConnection(self)


class HttpConnection(web.RequestHandler):
    """One connection; at any time one alarm runs, or none."""

    def __init__(self, connections: HttpConnections) -> None:
        super().__init__(
            connections.server,
            loop=asyncio.get_running_loop(),
            logger=connections.logger,
            keepalive_timeout=connections.idle_seconds,
            access_log=None,  # type: ignore[arg-type]  # None logs nothing
        )
        self._connections = connections
        self._first = True
        self._idle: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        self._connections.open.add(self)
        if len(self._connections.open) > self._connections.connections_max:
            self._abort()
        else:
            self.ended()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget it."""
        self._connections.open.discard(self)
        self.begun()
        self._reads()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take input; a client of AMQP is told where it is, in the only way that it understands."""
        if self._first:
            self._first = False
            if data.startswith(b"AMQP") and self.transport is not None:
                self._connections.log("warning", self._stranger(self.transport))
                self.transport.write(_wrong_port())
                self.transport.close()
                return
        super().data_received(data)

    def _stranger(self, transport: asyncio.BaseTransport) -> str:
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        text = f"the peer {peer[0]}:{peer[1]} speaks AMQP, but this port speaks HTTP"
        return f"{text}; AMQP is on the port that the setting port names"

    def begun(self) -> None:
        """Hear that a whole request is at hand."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def ended(self) -> None:
        """Hear that the request at hand is answered; the next one is waited for."""
        self.begun()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._connections.idle_seconds, self._abort)

    def pause_writing(self) -> None:
        """Hear that the peer does not read."""
        super().pause_writing()
        loop = asyncio.get_running_loop()
        self._reads()
        self._stall = loop.call_later(self._connections.stall_seconds, self._abort)

    def resume_writing(self) -> None:
        """Hear that it reads again."""
        self._reads()
        super().resume_writing()

    def _reads(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _abort(self) -> None:
        """Drop the connection with what waits in it, also in the kernel's buffer."""
        if self.transport is None:
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # Else the kernel would keep what the peer does not read for a quarter of an hour.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()
