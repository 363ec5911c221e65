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
        self._tail = tail[-len(_CLOSE_OK) :]
        if _CLOSE_OK in tail:
            return CLOSE_OK
        close = tail.find(_CLOSE)
        if close >= 7 and tail[close - 7 : close - 4] == _METHOD_ON_0:
            return CLOSE
        return NOTHING
