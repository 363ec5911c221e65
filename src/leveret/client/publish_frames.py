"""The bytes of publishes by their parts, for who writes many that resemble each other.

    method(exchange, routing key) | header_start(size of the properties) | body_size(size)
    | properties | body_start(size) | body | FRAME_END_OCTET

is what a channel writes for one message.  Each part depends on little, so that it is made once and
serves again.  A body larger than `body_bytes_max` needs several frames: `long_body` takes the place
of its `body_start` and itself.

Invariant: the parts together are, byte for byte, what `Output.publish` writes (a property test
compares them).
"""

from __future__ import annotations

from typing import Final

from leveret.client.names import checked
from leveret.client.session.output import BASIC, Output
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

#: A header frame up to its body size: its head, the class and the weight.
_HEADER_START_BYTES: Final = FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES - 8


class PublishFrames:
    """Makes the parts for one channel of a connection with that `frame_max`."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self.channel = channel
        self.frame_max = frame_max
        #: The largest body that one frame holds.
        self.body_bytes_max = frame_max - FRAME_OVERHEAD_BYTES
        #: The largest properties that a frame holds.
        self.properties_bytes_max = self.body_bytes_max - CONTENT_HEAD_BYTES

    def method(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        """Return the frame of basic.publish.  Raises: ValueError for a name that cannot be sent."""
        output = Output()
        output.frame_max = self.frame_max
        publish = BasicPublish(
            exchange=checked("exchange", exchange),
            routing_key=checked("routing_key", routing_key),
            mandatory=mandatory,
        )
        output.send(self.channel, publish)
        return output.take()

    def header_start(self, properties: int) -> bytes:
        """Return the header frame of `properties` bytes of properties up to the body's size.

        Raises: ValueError when no frame holds them.
        """
        if properties > self.properties_bytes_max:
            raise ValueError(f"{properties} bytes of properties; a frame holds {self.frame_max}")
        w = BytesWriter()
        write_header(w, self.channel, BASIC, 0, bytes(properties))
        return w.getvalue()[:_HEADER_START_BYTES]

    def body_size(self, size: int) -> bytes:
        """Return the body's size as the header has it."""
        return size.to_bytes(8)

    def body_start(self, size: int) -> bytes:
        """Return what stands between the properties and a body in one frame."""
        if size == 0:
            return b""  # there is no body frame: the end of the header ends the message
        w = BytesWriter()
        w.write(FRAME_END_OCTET)
        write_frame_head(w, FRAME_BODY, self.channel, size)
        return w.getvalue()

    def long_body(self, body: bytes) -> bytes:
        """Return what stands between the properties and the last octet of a body in any frames."""
        w = BytesWriter()
        w.write(FRAME_END_OCTET)
        write_body(w, self.channel, body, self.frame_max)
        w.truncate(len(w) - 1)
        return w.getvalue()

    def publish(
        self, exchange: str, routing_key: str, mandatory: bool, properties: bytes, body: bytes
    ) -> bytes:
        """Return one whole publish.  Raises: ValueError when it cannot be written."""
        return b"".join(
            (
                self.method(exchange, routing_key, mandatory),
                self.header_start(len(properties)),
                self.body_size(len(body)),
                properties,
                self.long_body(body),
                FRAME_END_OCTET,
            )
        )
