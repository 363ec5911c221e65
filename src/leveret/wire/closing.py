"""Search for connection.close-ok or connection.close in input that cannot be parsed."""

from __future__ import annotations

from typing import Final, final

from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import FRAME_HEAD_BYTES, write_method
from leveret.wire.method import Method, payload
from leveret.wire.methods.connection import ConnectionClose, ConnectionCloseOk

NOTHING_FOUND: Final = 0
CLOSE_OK_FOUND: Final = 1
CLOSE_FOUND: Final = 2


def _frame(method: Method) -> bytes:
    """Return the frame of a method on channel 0."""
    w = BytesWriter()
    write_method(w, 0, method)
    return w.getvalue()


#: The frame of a connection.close-ok, and the ids at the start of a connection.close's payload.
_CLOSE_OK: Final = _frame(ConnectionCloseOk())
_CLOSE_IDS: Final = payload(ConnectionClose())[:4]

#: The start of a method frame on channel 0.
_METHOD_ON_0: Final = b"\x01\x00\x00"

#: The longest payload of a connection.close: ids, code, a short string, ids.
_CLOSE_BYTES_MAX: Final = 4 + 2 + 256 + 4

#: The number of bytes kept between pieces: the longest frame of a connection.close.
_TAIL_BYTES: Final = 8 + _CLOSE_BYTES_MAX


@final
class CloseScanner:
    """Finds the frame of either method on channel 0, even if it arrives in pieces."""

    def __init__(self) -> None:
        self._tail = b""

    def scan(self, data: bytes) -> int:
        """Return CLOSE_OK_FOUND, CLOSE_FOUND or NOTHING_FOUND."""
        tail = self._tail + data
        self._tail = tail[-_TAIL_BYTES:]
        if _CLOSE_OK in tail:
            return CLOSE_OK_FOUND
        ids = tail.find(_CLOSE_IDS)
        if ids >= FRAME_HEAD_BYTES and tail[ids - 7 : ids - 4] == _METHOD_ON_0:
            # Wait for the whole close, because a peer still sending would find the socket closed.
            size = int.from_bytes(tail[ids - 4 : ids], "big")
            if size > _CLOSE_BYTES_MAX or len(tail) > ids + size:
                return CLOSE_FOUND
        return NOTHING_FOUND
