"""A non-blocking socket, plain or TLS.

Invariant: `receive` and `send` return at once; only `wait` blocks.
"""

from __future__ import annotations

import selectors
import socket
import ssl as ssl_module
import time
from typing import TYPE_CHECKING, Final

from leveret.client.certificates import explained

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: Bytes per read.
READ_BYTES: Final = 262_144


class SocketLink:
    """An open socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._selector = selectors.DefaultSelector()
        self._write_wanted = False  # TLS must write before it can continue reading
        sock.setblocking(False)
        self._events = selectors.EVENT_READ
        self._selector.register(sock, self._events)

    def receive(self) -> bytes | None:
        """Return available input, None if there is no input yet, or b"" at the end.

        Raises: OSError.
        """
        self._write_wanted = False
        try:
            return self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl_module.SSLWantReadError):
            return None
        except ssl_module.SSLWantWriteError:
            self._write_wanted = True
            return None
        except ssl_module.SSLEOFError:
            return b""

    def send(self, data: memoryview) -> int:
        """Send as much as the socket accepts; return the number of bytes.  Raises: OSError."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl_module.SSLWantReadError, ssl_module.SSLWantWriteError):
            return 0

    def wait(self, writing: bool, seconds: float | None) -> None:
        """Wait until the socket is readable or, with `writing`, writable.

        A read takes a whole TLS record, so TLS holds no input of which the socket shows nothing.
        """
        events = selectors.EVENT_READ
        if writing or self._write_wanted:
            events |= selectors.EVENT_WRITE
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events)
        self._selector.select(seconds)

    def close(self) -> None:
        """Close the socket."""
        self._selector.close()
        self._socket.close()


def open_link(
    parameters: Parameters, ssl: ssl_module.SSLContext | None, deadline: float
) -> SocketLink:
    """Connect, with TLS if a context is given, before `deadline` (monotonic seconds).

    Raises: OSError, including TimeoutError, CertificateRefused and TlsFailed.
    """
    address = (parameters.host, parameters.port)
    sock = socket.create_connection(address, timeout=max(0.001, deadline - time.monotonic()))
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ssl is not None:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock = _secured(sock, ssl, parameters)
        return SocketLink(sock)
    except BaseException:
        sock.close()
        raise


def _secured(
    sock: socket.socket, ssl: ssl_module.SSLContext, parameters: Parameters
) -> ssl_module.SSLSocket:
    """Wrap the socket in TLS.  Raises: CertificateRefused, TlsFailed; OSError."""
    try:
        return ssl.wrap_socket(sock, server_hostname=parameters.host)
    except ssl_module.SSLError as error:
        raise explained(error, parameters) from error
