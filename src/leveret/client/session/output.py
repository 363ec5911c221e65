"""What a session has to send: frames gathered in one buffer until the shell takes them.

Invariant: the buffer holds whole frames only.  A method or header that cannot be written, or that
is larger than the negotiated frame, is taken back before the error leaves here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.limits import FRAME_BYTES_MAX, SHORT_STRING_BYTES_MAX
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    PROTOCOL_HEADER,
    write_body,
    write_header,
    write_heartbeat,
    write_method,
)

if TYPE_CHECKING:
    from leveret.wire.method import Method

#: The class of all content: basic.
BASIC: Final = 60


class Output:
    """Frames to be sent; `sent` tells whether any were taken since it was last cleared."""

    __slots__ = ("_w", "frame_max", "sent")

    def __init__(self) -> None:
        self._w = BytesWriter()
        self.frame_max = FRAME_BYTES_MAX
        self.sent = False

    def __len__(self) -> int:
        return len(self._w)

    def take(self) -> bytes:
        """Return what is to be sent and forget it."""
        data = self._w.getvalue()
        if data:
            self._w.truncate(0)
            self.sent = True
        return data

    def start(self) -> None:
        """Write the protocol header."""
        self._w.write(PROTOCOL_HEADER)

    def heartbeat(self) -> None:
        """Write a heartbeat."""
        write_heartbeat(self._w)

    def send(self, channel: int, method: Method) -> None:
        """Write a method.  Raises: ValueError when it cannot be written or is too large."""
        w = self._w
        mark = len(w)
        try:
            write_method(w, channel, method)
            self._check(len(w) - mark)
        except ValueError as error:
            w.truncate(mark)
            raise ValueError(f"{method.NAME}: {error}") from None
        except BaseException:
            w.truncate(mark)
            raise

    def publish(self, channel: int, method: Method, properties: bytes, body: bytes) -> None:
        """Write a method, of short strings only, with its content.  Raises: as `send`."""
        w = self._w
        mark = len(w)
        try:
            write_method(w, channel, method)
            start = len(w)
            write_header(w, channel, BASIC, len(body), properties)
            self._check(len(w) - start)
            write_body(w, channel, body, self.frame_max)
        except BaseException:
            w.truncate(mark)
            raise

    def publish_encoded(self, frames: bytes) -> None:
        """Write whole publishes, which the caller answers for."""
        self._w.write(frames)

    def _check(self, size: int) -> None:
        """Refuse a frame of `size` bytes that the peer would not take."""
        if size > self.frame_max:
            text = f"{size} bytes of arguments or properties; a frame holds {self.frame_max}"
            raise ValueError(text)


def reply_text(text: str) -> str:
    """Return `text` cut to what a short string holds."""
    raw = text.encode()
    if len(raw) <= SHORT_STRING_BYTES_MAX:
        return text
    return raw[:SHORT_STRING_BYTES_MAX].decode(errors="ignore")
