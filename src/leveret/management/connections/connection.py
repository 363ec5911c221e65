"""HTTP connections: on TCP, where the peer may be slow or hostile, and on the Unix socket.

A connection on TCP is closed if no complete request arrives in time, if the peer does not read its
answer, or to make room for another connection.  Bodies are never decompressed, because a kilobyte
could become a gigabyte before its sender is authenticated.  This module loads the framework.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from leveret.clock import Clock
from leveret.limits import (
    HTTP_HEAD_SECONDS_MAX,
    HTTP_IDLE_SECONDS_MAX,
    HTTP_STALL_SECONDS_MAX,
)
from leveret.management.alarm import Alarm
from leveret.management.connections.log import Log, make_logger, unreadable
from leveret.session.admission import Admission, Slot
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import write_method
from leveret.wire.methods.connection import ConnectionClose

#: A TLS record with the fatal alert handshake_failure (RFC 8446, section 6).
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x28"

#: SO_LINGER with a timeout of zero: closing sends a reset.
_RESET: Final = struct.pack("ii", 1, 0)


def _wrong_port() -> bytes:
    """Return a connection.close for AMQP clients, which show its text to the user."""
    text = "CONNECTION_FORCED - this port speaks HTTP; AMQP is on another, 5672 unless set"
    writer = BytesWriter()
    write_method(writer, 0, ConnectionClose(320, text, 0, 0))
    return writer.getvalue()


class JsonErrors(web.RequestHandler):
    """Answers malformed HTTP requests with an error in JSON, like all errors of the API."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the error as an answer, after which the connection closes.

        Raises: ConnectionError if another answer has begun.
        """
        super().handle_error(request, status, exc, message)
        phrase = reason = HTTPStatus(status).phrase
        if isinstance(exc, HttpProcessingError):
            reason = unreadable(exc)
        body = {"error": phrase.lower().replace(" ", "_"), "reason": reason}
        headers = {
            "Cache-Control": "no-cache",
            "Content-Type": "application/json",
            "Server": "Leveret",
        }
        response = web.Response(body=json.dumps(body).encode(), status=status, headers=headers)
        response.force_close()
        return response


class HttpConnections:
    """The limits and resources that the connections of one TCP listener share."""

    def __init__(
        self,
        server: web.Server,
        admission: Admission,
        clock: Clock,
        idle_seconds: float = HTTP_IDLE_SECONDS_MAX,
        stall_seconds: float = HTTP_STALL_SECONDS_MAX,
        head_seconds: float = HTTP_HEAD_SECONDS_MAX,
        log: Log = lambda _level, _text: None,
    ) -> None:
        self.server = server
        self.log = log
        self.logger = make_logger(log)
        self.admission = admission
        self.clock = clock
        self.idle_seconds = idle_seconds
        self.stall_seconds = stall_seconds
        self.head_seconds = min(head_seconds, idle_seconds)

    def make(self, network: str) -> tuple[HttpConnection, Slot]:
        """Return the protocol of a new connection, and its slot."""
        connection = HttpConnection(self, network)
        return connection, connection.slot


class HttpConnection(JsonErrors):
    """One connection on TCP; at most one idle alarm runs at any time."""

    def __init__(self, connections: HttpConnections, network: str) -> None:
        super().__init__(
            connections.server,
            loop=asyncio.get_running_loop(),
            logger=connections.logger,
            # Idle connections are closed here, by a clock that excludes suspensions.
            keepalive_timeout=2 * connections.idle_seconds + 3600,
            # The transport itself reads and discards a body that has not arrived completely.
            lingering_time=0,
            auto_decompress=False,
            # Limits the body bytes read before a request is refused to little more than this.
            read_bufsize=16_384,
            access_log=None,  # type: ignore[arg-type]  # None logs nothing
        )
        self._connections = connections
        self.slot = Slot(network, self._expel, is_authenticating=self._is_authenticating)
        #: Whether a request is being answered: from its complete head to the end of the answer.
        self._asking = False
        self._expelled = False
        self._first = True
        #: True from the first byte of a request, or of the connection, to the end of its head.
        self._heading = False
        self._idle: Alarm | None = None
        self._stall: Alarm | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, unless the connection has already lost its slot."""
        super().connection_made(transport)
        if self._expelled:
            self._abort()
        else:
            self.ended()
            self._heading = True
            self._wait_for_request(self.slot.opening_seconds(self._connections.head_seconds))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the slot."""
        self._quiet()
        self._reads()
        self._connections.admission.leave(self.slot)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on input; answer AMQP and TLS clients with an error in their own protocol."""
        if self._first:
            self._first = False
            if data.startswith(b"AMQP") and self.transport is not None:
                self._connections.log("warning", self._wrong_protocol(self.transport))
                self.transport.write(_wrong_port())
                self.transport.close()
                return
            if data.startswith(b"\x16\x03") and self.transport is not None:
                self._connections.log("warning", self._tls_without_tls(self.transport))
                self.transport.write(_TLS_ALERT)
                self.transport.close()
                return
        if self._idle is not None and not self._heading:
            self._begin_head()
        super().data_received(data)

    def recognised(self) -> None:
        """Mark the connection as authenticated."""
        self._connections.admission.authenticated(self.slot)

    def _wrong_protocol(self, transport: asyncio.BaseTransport) -> str:
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        text = f"the peer {peer[0]}:{peer[1]} speaks AMQP, but this port speaks HTTP"
        return f"{text}; the setting port gives the port of AMQP"

    def _tls_without_tls(self, transport: asyncio.BaseTransport) -> str:
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        text = f"the peer {peer[0]}:{peer[1]} speaks TLS, but this port speaks HTTP without TLS"
        return f"{text}; HTTP over TLS is on https_port if tls_certificate is set"

    def begun(self) -> None:
        """Begin to handle a request whose head is complete."""
        self._quiet()
        self._heading = False
        self._asking = True
        self._connections.admission.busy(self.slot)

    def awaits_body(self) -> None:
        """Mark the connection as idle while it waits for a body.

        Otherwise any authenticated user, even one without rights, could occupy all slots by sending
        bodies slowly.
        """
        self._connections.admission.idle(self.slot)

    def has_body(self) -> None:
        """Mark the connection as busy again once the body is complete or refused."""
        self._connections.admission.busy(self.slot)

    def _quiet(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def ended(self) -> None:
        """Wait for the next request after an answer."""
        self._asking = False
        self._heading = False
        self._connections.admission.idle(self.slot)
        self._wait_for_request(self._connections.idle_seconds)

    def _begin_head(self) -> None:
        self._heading = True
        self._wait_for_request(self._connections.head_seconds)

    def _wait_for_request(self, seconds: float) -> None:
        self._quiet()
        if self.transport is not None:
            # Without a transport the connection is lost, and needs no timeout.
            self._idle = Alarm(self._connections.clock, seconds, self._abort)

    def pause_writing(self) -> None:
        """Start the stall timeout, because the peer does not read."""
        super().pause_writing()
        self._reads()
        connections = self._connections
        self._stall = Alarm(connections.clock, connections.stall_seconds, self._abort)

    def resume_writing(self) -> None:
        """Stop the stall timeout, because the peer reads again."""
        self._reads()
        super().resume_writing()

    def _reads(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def refused(self) -> None:
        """Stop counting the connection as authenticating after a wrong password."""
        self._asking = False

    def _is_authenticating(self) -> bool:
        return self._asking

    def _expel(self) -> None:
        """Close the connection to make room for another one."""
        self._expelled = True
        text = "too many connections: closing an HTTP connection that is idle or has not logged in"
        self._connections.log("warning", f"{text}, from '{self.slot.network}'")
        self._abort()

    def _abort(self) -> None:
        """Reset the connection, and discard unsent output, including the kernel's."""
        if self.transport is None:
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            # Otherwise the kernel would retain unread output for a quarter of an hour.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


class OperatorConnections:
    """The resources that connections to the Unix socket share; only the operator can connect."""

    def __init__(self, server: web.Server, admission: Admission, log: Log) -> None:
        self.server = server
        self.admission = admission
        self.logger = make_logger(log)

    def make(self, network: str) -> tuple[OperatorConnection, Slot]:
        """Return the protocol of a new connection, and its slot."""
        connection = OperatorConnection(self, network)
        return connection, connection.slot


class OperatorConnection(JsonErrors):
    """One connection of the operator, which has no timeouts.

    A connection without a request is closed if there are too many connections.
    """

    def __init__(self, connections: OperatorConnections, network: str) -> None:
        super().__init__(
            connections.server,
            loop=asyncio.get_running_loop(),
            logger=connections.logger,
            lingering_time=0,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]  # None logs nothing
        )
        self._admission = connections.admission
        self.slot = Slot(network, self._expel)

    def _expel(self) -> None:
        """Close the connection to make room for another one."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.ended()

    def begun(self) -> None:
        """Mark the connection as busy while a request is being answered."""
        self._admission.busy(self.slot)

    def ended(self) -> None:
        """Mark the connection as idle, so that another one may replace it."""
        self._admission.idle(self.slot)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the slot."""
        self._admission.leave(self.slot)
        super().connection_lost(exc)
