"""How a connection closes: its connection.close, and the wait for the client's close-ok.

After a frame that could not be read nothing that follows can be parsed for certain.  But a
connection.close-ok (or a close of the client's own) is known by its bytes, and with it the socket
can be closed at once: so `CloseScanner` looks for it in what comes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import AmqpError
from leveret.session.connection_base import ConnectionBase
from leveret.session.states import CLOSING
from leveret.wire.closing import CLOSE_FOUND, NOTHING_FOUND, CloseScanner
from leveret.wire.methods import ConnectionClose, ConnectionCloseOk, decode_method

#: How long a peer may take for its close-ok.
CLOSE_OK_MS: Final = 10_000


@final
class Closing:
    """The closing handshake of one connection, begun by the broker."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: When it began (monotonic ms).
        self._begun_ms: i64 = 0
        self._scanner = CloseScanner()
        #: True after a frame that could not be read: input is only scanned.
        self.scans = False

    def begin(self, close: ConnectionClose) -> None:
        """Send a connection.close, and await the client's close-ok."""
        connection = self._connection
        connection.send(0, close)
        connection.advance(CLOSING)
        self._begun_ms = connection.now_ms

    def take_method(self, data: bytes, start: i64, end: i64) -> None:
        """Take a method frame, of which only a close-ok and a close count."""
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
        """Parse nothing more: what cannot be read would be met again and again."""
        self.scans = True
        self.scan(self._connection.reader.unparsed())

    def scan(self, data: bytes) -> None:
        """Look for the end of the closing handshake in input that is not parsed."""
        found = self._scanner.scan(data)
        if found == CLOSE_FOUND:
            self._connection.send(0, ConnectionCloseOk())
        if found != NOTHING_FOUND:
            self._connection.finish()

    def tick(self, now_ms: i64) -> None:
        """Give up a peer that takes too long for its close-ok."""
        if now_ms - self._begun_ms >= CLOSE_OK_MS:
            self._connection.finish()
