"""What a connection still hears after a frame that could not be read: the peer's goodbye.

Nothing that follows such a frame can be parsed for certain, but a connection.close-ok (or a close
of the peer's own) is twelve known bytes, and with it the socket can be closed at once.
"""

from __future__ import annotations

from typing import Final, final

#: The frame of a connection.close-ok.
_CLOSE_OK: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"

#: The ids of connection.close at the start of its payload, and what begins its frame.
_CLOSE: Final = b"\x00\x0a\x00\x32"
_METHOD_ON_0: Final = b"\x01\x00\x00"

#: The longest payload of a connection.close: ids, code, a short string, ids.
_CLOSE_BYTES_MAX: Final = 4 + 2 + 256 + 4

#: Kept between pieces: a whole frame of that.
_TAIL_BYTES: Final = 8 + _CLOSE_BYTES_MAX

NOTHING: Final = 0
CLOSE_OK: Final = 1
CLOSE: Final = 2


@final
class Listener:
    """Looks for the goodbye in input that is not parsed, also when it comes in pieces."""

    def __init__(self) -> None:
        self._tail = b""

    def hear(self, data: bytes) -> int:
        """Return CLOSE_OK, CLOSE or NOTHING."""
        tail = self._tail + data
        self._tail = tail[-_TAIL_BYTES:]
        if _CLOSE_OK in tail:
            return CLOSE_OK
        ids = tail.find(_CLOSE)
        if ids >= 7 and tail[ids - 7 : ids - 4] == _METHOD_ON_0:
            # Answered once it is whole: a peer that still sends would meet a closed socket.
            size = int.from_bytes(tail[ids - 4 : ids], "big")
            if size > _CLOSE_BYTES_MAX or len(tail) > ids + size:
                return CLOSE
        return NOTHING
