"""The output of a session: frames collected in one buffer until the shell takes them.

Buffered acks (`acks`) are written before any later frame and before the buffer is taken, so that
the broker receives the application's actions in order.

Invariant: the buffer contains whole frames only.  A method or header that is invalid, or larger
than the negotiated frame size, is removed before the error is raised.  This module is compiled.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.client.acks import ACK_FRAME_BYTES, Acks
from leveret.client.numbering import Numbering
from leveret.limits import FRAME_BYTES_MAX, FRAME_OVERHEAD_BYTES, SHORT_STRING_BYTES_MAX
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    PROTOCOL_HEADER,
    write_body,
    write_header,
    write_heartbeat,
    write_method,
)
from leveret.wire.method import Method

#: The class of all content: basic.
BASIC: Final = 60


@final
class ClientOutput:
    """Frames to be sent; `take` sets `sent`, which the caller may clear."""

    def __init__(self) -> None:
        self.frame_max = FRAME_BYTES_MAX
        self.sent = False
        self._w: Final = BytesWriter()
        self._acks: list[Acks] = []
        #: The channels that have published since the last `take_publishing`, and the last channel.
        self._publishing: list[int] = []
        self._last_publishing: i64 = -1

    def __len__(self) -> int:
        return len(self._w) + len(self._acks) * ACK_FRAME_BYTES

    def take(self) -> bytes:
        """Return and clear the pending output."""
        if self._acks:
            self._write_acks()
        if len(self._w) == 0:
            return b""
        data = self._w.getvalue()
        self._w.truncate(0)
        self.sent = True
        return data

    def take_publishing(self) -> list[int]:
        """Return the channels that have published since the last call, each once."""
        if self._last_publishing < 0:
            return []
        found = list(dict.fromkeys(self._publishing))
        self._publishing = []
        self._last_publishing = -1
        return found

    def start(self) -> None:
        """Write the protocol header."""
        self._w.write(PROTOCOL_HEADER)

    def heartbeat(self) -> None:
        """Write a heartbeat."""
        write_heartbeat(self._w)

    def gather(self, acks: Acks) -> None:
        """Schedule buffered acks to be written before any later frame."""
        if not acks.is_due:
            acks.is_due = True
            self._acks.append(acks)

    def _write_acks(self) -> None:
        """Write the buffered acks."""
        for acks in self._acks:
            acks.write(self._w)
        self._acks = []

    def forget(self, acks: Acks) -> None:
        """Discard the buffered acks of a channel that has ended."""
        self._acks = [one for one in self._acks if one is not acks]

    def send(self, channel: i64, method: Method) -> None:
        """Write a method.  Raises: ValueError if it is invalid or too large."""
        if self._acks:
            self._write_acks()
        w = self._w
        mark: i64 = len(w)
        try:
            write_method(w, channel, method)
            self._check(i64(len(w)) - mark)
        except ValueError as error:
            w.truncate(mark)
            raise ValueError(f"{method.NAME}: {error}") from None
        except BaseException:
            w.truncate(mark)
            raise

    def publish(
        self,
        channel: i64,
        method: bytes,
        properties: bytes,
        body: bytes,
        numbering: Numbering | None = None,
    ) -> None:
        """Write the frame of a basic.publish and its content, numbered if `numbering` is given.

        Raises: ValueError when its header is too large for a frame.
        """
        if self._acks:
            self._write_acks()
        if channel != self._last_publishing:
            self._last_publishing = channel
            self._publishing.append(int(channel))
        if numbering is not None:
            properties = numbering.next(properties)
        self._check(i64(len(properties)) + CONTENT_HEAD_BYTES + FRAME_OVERHEAD_BYTES)
        w = self._w
        w.write(method)
        write_header(w, channel, BASIC, len(body), properties)
        write_body(w, channel, body, self.frame_max)

    def publish_encoded(self, frames: bytes) -> None:
        """Write whole publishes, encoded by the caller."""
        self._w.write(frames)

    def _check(self, size: i64) -> None:
        """Check that a frame of `size` bytes fits.  Raises: ValueError."""
        if size > self.frame_max:
            text = f"{size} bytes of arguments or properties; a frame holds {self.frame_max}"
            raise ValueError(text)


def publish_frame(channel: i64, method: Method) -> bytes:
    """Return the frame of a basic.publish.  Raises: ValueError for an invalid argument."""
    w = BytesWriter()
    write_method(w, channel, method)
    return w.getvalue()


def reply_text(text: str) -> str:
    """Truncate `text` to the size of a short string."""
    raw = text.encode()
    if len(raw) <= SHORT_STRING_BYTES_MAX:
        return text
    return raw[:SHORT_STRING_BYTES_MAX].decode(errors="ignore")
