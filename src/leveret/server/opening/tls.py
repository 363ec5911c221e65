"""TLS on one connection, between the socket's transport and the connection's own protocol.

It uses OpenSSL over memory (`ssl.MemoryBIO`) instead of the event loop's TLS, for three reasons.
Encrypted output is passed to the transport at once, so that all output is in one buffer with the
water marks of a plain connection.  The input of one read is passed to the protocol above in one
call.  The costly steps of a handshake run outside the event loop (`handshakes`).

Invariants: the memory between OpenSSL and the socket is bounded by `TLS_PIECE_BYTES`; a handshake
has at most `TLS_HANDSHAKE_BYTES_MAX` and `TLS_HANDSHAKE_RECORDS_MAX` of input; at most
`TLS_RECORDS_PER_TURN` records of one peer are decrypted before other connections are served; a peer
that sends more than `TLS_EMPTY_RECORDS_MAX` records without content is dropped (`records`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final

from leveret.limits import TLS_EMPTY_RECORDS_MAX, TLS_HANDSHAKE_BYTES_MAX, TLS_HANDSHAKE_RECORDS_MAX
from leveret.server.opening.certificate_name import LoginName
from leveret.server.opening.handshakes import Handshakes, OpeningHandshake
from leveret.server.opening.opening import Openings, OpeningStep
from leveret.server.opening.records import TLS_PIECE_BYTES, Records
from leveret.session.admission import Admission, Slot
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import write_method
from leveret.wire.methods.connection import ConnectionClose

#: The maximum number of records of one peer that are decrypted before other connections are served;
#: a record of one byte takes 1 µs.
TLS_RECORDS_PER_TURN: Final = 512


#: The maximum number of bytes of content in a record (RFC 8446, section 5.1).
_RECORD_BYTES: Final = 16_384

#: The record type that every handshake begins with.
_HANDSHAKE_RECORD: Final = 22

#: The messages for OpenSSL's reasons for a failed handshake.
_REASONS: Final = {
    "UNSUPPORTED_PROTOCOL": "the client offers no TLS version that tls_version_min allows",
    "VERSION_TOO_LOW": "the client offers no TLS version that tls_version_min allows",
    "NO_SHARED_CIPHER": "the client offers no cipher that is allowed here, or none for the type "
    "of the key in tls_key",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, but tls_verify = "
    "required demands one",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of tls_certificate; it "
    "must know that authority's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client rejects tls_certificate: its name or its authority",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client rejects tls_certificate: its name or its "
    "authority",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that tls_certificate has expired",
}


class Tls:
    """The shared state of the connections of all TLS ports."""

    def __init__(
        self,
        openings: Openings,
        context: Callable[[], ssl.SSLContext],
        login_name: LoginName,
    ) -> None:
        """`context` returns the TLS context for a new connection."""
        self.openings = openings
        self.context = context
        self.login_name = login_name
        self.handshakes = Handshakes()

    def open(self, upper: asyncio.Protocol, slot: Slot, admission: Admission) -> TlsConnection:
        """Return the TLS step that precedes a protocol."""
        return TlsConnection(self, upper, slot, admission)

    def stop(self) -> None:
        """Stop computing handshakes."""
        self.handshakes.stop()


class TlsConnection(OpeningStep, OpeningHandshake):
    """TLS on one connection, between the transport below and the protocol above."""

    step = "finish its TLS handshake"

    def __init__(self, tls: Tls, upper: asyncio.Protocol, slot: Slot, admission: Admission) -> None:
        super().__init__(tls.openings, upper, slot, admission)
        self._tls = tls
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.object = tls.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.records = Records()
        self._handshake_bytes = 0
        self._calculating = False
        #: Whether the handshake has ended, and the exception that made it fail.
        self._ended = False
        self._fault: Exception | None = None
        #: Input that is not decrypted yet.
        self._rest = b""
        self._scheduled = False
        #: False while the protocol above has paused reading.
        self._reading = True
        self._closing = False

    # -- the handshake -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process encrypted input."""
        if self.is_open:
            if self._rest:
                self._rest += data
            else:
                self._decrypt(data)
            return
        if self._ended or self.is_gone:
            return
        if self._handshake_bytes == 0 and data[0] != _HANDSHAKE_RECORD:
            self._ended = True
            self._refuse_plain(data)
            return
        self._rest += data
        self._continue()

    def _continue(self) -> None:
        """Request the next step of the handshake, if there is input and no step in progress."""
        if self._calculating or not self._rest:
            return
        end = self.records.cut(self._rest, 0)
        piece, self._rest = self._rest[:end], self._rest[end:]
        self._handshake_bytes += len(piece)
        if self._handshake_bytes > TLS_HANDSHAKE_BYTES_MAX:
            self._refuse_long(f"{TLS_HANDSHAKE_BYTES_MAX} bytes")
            return
        if self.records.ended > TLS_HANDSHAKE_RECORDS_MAX:
            self._refuse_long(f"{TLS_HANDSHAKE_RECORDS_MAX} records")
            return
        assert self.raw is not None
        self.raw.pause_reading()
        self._incoming.write(piece)
        self._calculating = True
        self._tls.handshakes.request(self.slot.network, self)

    def _refuse_long(self, limit: str) -> None:
        self._ended = True
        self.refuse(f"its TLS handshake has more than {limit}")

    def calculate(self) -> None:
        """Compute a step of the handshake; runs in the thread."""
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except Exception as error:  # noqa: BLE001 (any error ends only this connection)
            self._fault = error
        self._ended = True

    def calculated(self) -> None:
        """Send the output of the step, and continue or end the handshake."""
        self._calculating = False
        if self.is_gone or self.raw is None or self.raw.is_closing():
            return
        self._flush()
        if not self._ended:
            self._continue()
            if not self._calculating:
                self.raw.resume_reading()
        elif self._fault is not None:
            self._failed(self._fault)
        else:
            self._finished()

    def _finished(self) -> None:
        """Pass the connection to the protocol above after the handshake."""
        self.opened()
        self.upper.connection_made(TlsTransport(self))
        if self.is_gone or self._closing:
            return
        data, self._rest = self._rest, b""
        # Data after the end of the handshake may already be in OpenSSL's memory.
        self._decrypt(data)
        self._judge_reading()

    def _failed(self, fault: Exception) -> None:
        """Log the reason for a failed handshake; the peer has received an alert."""
        reason = getattr(fault, "reason", None) or ""
        if isinstance(fault, ssl.SSLCertVerificationError):
            text = f"its certificate is rejected: {fault.verify_message} (tls_ca, tls_verify)"
        else:
            text = _REASONS.get(reason) or reason.replace("_", " ").lower() or str(fault)
        self.refuse(f"TLS handshake failed: {text}")

    def _refuse_plain(self, data: bytes) -> None:
        """Refuse a peer without TLS, with an answer in its own protocol."""
        assert self.raw is not None
        if data.startswith(b"AMQP"):
            text = "this port speaks TLS; use amqps://, or the port of plain AMQP"
            self.refuse(f"it speaks AMQP without TLS, but {text}", _amqp_close(text))
        elif data[:1].isalpha() and b"HTTP/1." in data[:4096]:
            text = "this port speaks TLS; use https://, or the port of plain HTTP"
            self.refuse(f"it speaks HTTP without TLS, but {text}", _bad_request(text))
        else:
            self.refuse(f"it does not speak TLS; it began with {data[:8]!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop waiting work and input, and log a disconnect during the handshake."""
        if self._calculating:
            self._tls.handshakes.forget(self.slot.network, self)
        elif not self.is_open and not self._ended and self._handshake_bytes and not self.is_gone:
            text = "it disconnected in the middle of its TLS handshake"
            self.openings.say("warning", f"{self.peer}: {text}; it may not trust tls_certificate")
        self._closing = True
        self._rest = b""
        super().connection_lost(exc)

    # -- input -------------------------------------------------------------------------------------

    def _decrypt(self, data: bytes) -> None:
        """Decrypt input, up to a number of records, and pass it to the protocol above."""
        read, records, view, at = self.object.read, self.records, memoryview(data), 0
        parts: list[bytes] = []
        failed = ended = floods = False
        while True:
            # One read returns the content of one record, and skips those without content.
            before = records.ended - len(parts)
            if at < len(data):
                end = records.cut(data, at)
                self._incoming.write(view[at:end])
                at = end
            try:
                while part := read(_RECORD_BYTES):
                    parts.append(part)
                ended = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                failed = True
            empty = records.ended - len(parts) - before
            if empty > 0 and records.are_empty(empty, self.openings.loop.time()):
                floods = True
            if failed or ended or floods or at >= len(data) or len(parts) >= TLS_RECORDS_PER_TURN:
                break
        if self._outgoing.pending:
            self._flush()
        self._rest = data[at:]
        if parts:
            self.upper.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._closing:
            return
        if floods:
            text = f"closing the connection of {self.peer}: its TLS records carry no content"
            often = f"more than {TLS_EMPTY_RECORDS_MAX} at once, or more than one each second"
            self.openings.say("warning", f"{text} ({often})")
            self.abort()
        elif failed:
            # Not logged, because anybody on the network path can cause this at any time.
            self.abort()
        elif ended:
            self.upper.eof_received()
            self.close()
        elif self._rest:
            self._go_on_later()

    def _go_on_later(self) -> None:
        """Pause reading, and decrypt the rest after other connections were served."""
        self._judge_reading()
        if self._reading and not self._scheduled:
            self._scheduled = True
            self.openings.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        if self._reading and self._rest and not self._closing:
            data, self._rest = self._rest, b""
            self._decrypt(data)
            self._judge_reading()

    def set_reading(self, reading: bool) -> None:
        """Pause or resume reading for the protocol above."""
        self._reading = reading
        if self._rest and reading:
            self._go_on_later()
        else:
            self._judge_reading()

    def _judge_reading(self) -> None:
        """Read the socket if the protocol above reads and no input is left to decrypt."""
        if self._closing or self.raw is None:
            return
        if self._reading and not self._rest:
            self.raw.resume_reading()
        else:
            self.raw.pause_reading()

    def eof_received(self) -> bool | None:
        """Handle an end of input without a closing alert."""
        if self.is_open and not self._closing:
            self.upper.eof_received()
        return False

    # -- output ------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send data."""
        if self._closing or not data:
            return
        try:
            if len(data) <= TLS_PIECE_BYTES:
                self.object.write(data)
                self._flush()
                return
            view = memoryview(data)
            for at in range(0, len(view), TLS_PIECE_BYTES):
                self.object.write(view[at : at + TLS_PIECE_BYTES])
                self._flush()
        except ssl.SSLError:
            self.abort()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and self.raw is not None:
            self.raw.write(data)

    def pause_writing(self) -> None:
        """Notify the protocol above that the transport's write buffer is full."""
        if self.is_open:
            self.upper.pause_writing()

    def resume_writing(self) -> None:
        """Notify the protocol above that the transport's write buffer has room again."""
        if self.is_open:
            self.upper.resume_writing()

    def close(self) -> None:
        """Send the closing alert, and close the connection once all output is sent."""
        if self._closing or self.raw is None:
            return
        self._closing = True
        self._rest = b""
        with contextlib.suppress(ssl.SSLError):
            # Raises because the peer's closing alert, which is not needed, has not arrived.
            self.object.unwrap()
        self._flush()
        self.raw.close()

    def abort(self) -> None:
        """Drop the connection and its unsent output."""
        self._closing = self._closing or self.is_open
        super().abort()

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closing or lost."""
        return self._closing or self.is_gone

    def login_name(self) -> str:
        """Return the name in the client's verified certificate, or "" without one."""
        return self._tls.login_name.of(self.object)


class TlsTransport(asyncio.Transport):
    """The transport for the protocol above."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        assert connection.raw is not None
        self._connection = connection
        self._raw = connection.raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection, by asyncio's names or `certificate_name`."""
        connection = self._connection
        if name == "ssl_object":
            return connection.object
        if name == "sslcontext":
            return connection.object.context
        if name == "certificate_name":
            return connection.login_name()
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send data."""
        self._connection.write(data)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent encrypted bytes."""
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high water mark of the write buffer."""
        return self._raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks of the write buffer."""
        self._raw.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        """Pause reading."""
        self._connection.set_reading(False)

    def resume_reading(self) -> None:
        """Resume reading."""
        self._connection.set_reading(True)

    def is_reading(self) -> bool:
        """Return whether the transport is receiving."""
        return self._raw.is_reading()

    def can_write_eof(self) -> bool:
        """Return False, because closing one direction alone is not supported."""
        return False

    def is_closing(self) -> bool:
        """Return whether the connection is closing or lost."""
        return self._connection.is_closing

    def close(self) -> None:
        """Close the connection once all output is sent."""
        self._connection.close()

    def abort(self) -> None:
        """Drop the connection."""
        self._connection.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol above."""
        assert isinstance(protocol, asyncio.Protocol)
        self._connection.upper = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        return self._connection.upper


def _amqp_close(text: str) -> bytes:
    """Return a connection.close for AMQP clients, which show its text to the user."""
    writer = BytesWriter()
    write_method(writer, 0, ConnectionClose(320, f"CONNECTION_FORCED - {text}", 0, 0))
    return writer.getvalue()


def _bad_request(text: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
