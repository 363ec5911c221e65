"""The bytes of publishes by their parts, for who writes many that resemble each other.

    method(exchange, routing key) | head(properties, body size) | body | FRAME_END_OCTET

is what a channel writes for one message, so that the parts that repeat are made once; a body larger
than `body_bytes_max` needs several frames and comes from `long_content` instead of the last three.

Invariant: the parts together are, byte for byte, what `Output.publish` writes (a property test
compares them).
"""

from __future__ import annotations

from typing import Final

from leveret.client.output import BASIC, Output
from leveret.limits import FRAME_OVERHEAD_BYTES
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_BYTES,
    write_body,
    write_frame_head,
    write_header,
)
from leveret.wire.methods.basic import BasicPublish

#: What ends every frame, and so every message.
FRAME_END_OCTET: Final = bytes([FRAME_END])

#: Where the properties begin in what `head` returns.
PROPERTIES_AT: Final = FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES


class PublishFrames:
    """Makes the parts for one channel of a connection with that `frame_max`."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self.channel = channel
        self.frame_max = frame_max
        #: The largest body that one frame holds.
        self.body_bytes_max = frame_max - FRAME_OVERHEAD_BYTES

    def method(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        """Return the frame of basic.publish.  Raises: ValueError for a name above 255 bytes."""
        output = Output()
        output.frame_max = self.frame_max
        publish = BasicPublish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
        output.send(self.channel, publish)
        return output.take()

    def head(self, properties: bytes, size: int) -> bytes:
        """Return what stands between the method's frame and a body of `size` bytes.

        Raises: ValueError for properties that no frame holds.
        """
        w = BytesWriter()
        self._write_header(w, properties, size)
        if size == 0:
            w.truncate(len(w) - 1)  # there is no body frame: the header's end ends the message
        else:
            write_frame_head(w, FRAME_BODY, self.channel, size)
        return w.getvalue()

    def long_content(self, properties: bytes, body: bytes) -> bytes:
        """Return the header and the frames of a body, all but the last octet.

        Raises: ValueError for properties that no frame holds.
        """
        w = BytesWriter()
        self._write_header(w, properties, len(body))
        write_body(w, self.channel, body, self.frame_max)
        w.truncate(len(w) - 1)
        return w.getvalue()

    def _write_header(self, w: BytesWriter, properties: bytes, size: int) -> None:
        """Write the content header."""
        if PROPERTIES_AT + len(properties) + 1 > self.frame_max:
            raise ValueError(
                f"{len(properties)} bytes of properties; a frame holds {self.frame_max}"
            )
        write_header(w, self.channel, BASIC, size, properties)
