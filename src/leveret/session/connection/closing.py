"""The closing handshake: send connection.close, and wait for the client's close-ok.

After a malformed frame, the following input cannot be parsed reliably.  But the bytes of a
connection.close-ok (or of the client's own close) are recognisable, and allow closing the socket
at once.  So `CloseScanner` searches the input for them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import AmqpError
from leveret.session.connection_base import ConnectionBase
from leveret.session.states import CLOSING
from leveret.wire.closing import CLOSE_FOUND, NOTHING_FOUND, CloseScanner
from leveret.wire.methods import ConnectionClose, ConnectionCloseOk, decode_method

#: The time limit for the peer's close-ok.
CLOSE_OK_MS: Final = 10_000


@final
class Closing:
    """The closing handshake of one connection, begun by the broker."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: The start of the handshake (monotonic ms).
        self._begun_ms: i64 = 0
        self._scanner = CloseScanner()
        #: True after a malformed frame, so that input is only scanned.
        self.scans = False

    def begin(self, close: ConnectionClose) -> None:
        """Send a connection.close and wait for the client's close-ok."""
        connection = self._connection
        connection.send(0, close)
        connection.advance(CLOSING)
        self._begun_ms = connection.now_ms

    def take_method(self, data: bytes, start: i64, end: i64) -> None:
        """Handle a method frame; ignore all methods but close-ok and close."""
        try:
            method = decode_method(data, start, end)
        except AmqpError:
            return
        if isinstance(method, ConnectionClose):
            self._connection.send(0, ConnectionCloseOk())
            self._connection.finish()
        elif isinstance(method, ConnectionCloseOk):
            self._connection.finish()

    def stop_parsing(self) -> None:
        """Stop parsing, because the malformed frame would be found again and again."""
        self.scans = True
        self.scan(self._connection.reader.unparsed())

    def scan(self, data: bytes) -> None:
        """Search unparsed input for the end of the closing handshake."""
        found = self._scanner.scan(data)
        if found == CLOSE_FOUND:
            self._connection.send(0, ConnectionCloseOk())
        if found != NOTHING_FOUND:
            self._connection.finish()

    def tick(self, now_ms: i64) -> None:
        """Close the connection if the peer's close-ok takes too long."""
        if now_ms - self._begun_ms >= CLOSE_OK_MS:
            self._connection.finish()
