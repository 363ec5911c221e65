"""The encoded parts of publishes, for callers that write many similar messages.

A channel writes these bytes for one message:

    method(exchange, routing key) | header_start(size of the properties) | body_size(size)
    | properties | body_start(size) | body | FRAME_END_OCTET

Each part depends on few values, so that it can be created once and reused.  A body larger than
`body_bytes_max` needs several frames; `long_body` then replaces both `body_start` and the body.

The functions below `PublishFrames` check and edit property bytes without decoding them.

Invariant: the concatenated parts equal the output of `ClientOutput.publish` byte for byte (a
property test compares them).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.client.names import checked
from leveret.client.session.output import BASIC, ClientOutput
from leveret.limits import FRAME_OVERHEAD_BYTES
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.message_batch import BATCH_PROPERTIES
from leveret.wire.edit import edit_headers, without_property
from leveret.wire.frames import (
    CONTENT_HEAD_BYTES,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_BYTES,
    write_frame_head,
    write_header,
)
from leveret.wire.methods.basic import BasicPublish
from leveret.wire.properties import HEADERS, find_property, skim_properties

#: The last octet of every frame, and so of every message.
FRAME_END_OCTET: Final = bytes([FRAME_END])

#: The size of a header frame before its body size field: the frame head, the class and the weight.
_HEADER_START_BYTES: Final = FRAME_HEAD_BYTES + CONTENT_HEAD_BYTES - 8


class PublishFrames:
    """Creates the parts for one channel of a connection with this `frame_max`."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self.channel = channel
        self.frame_max = frame_max
        #: The largest body that fits into one frame.
        self.body_bytes_max = frame_max - FRAME_OVERHEAD_BYTES
        #: The largest properties that fit into a frame.
        self.properties_bytes_max = self.body_bytes_max - CONTENT_HEAD_BYTES

    def method(self, exchange: str, routing_key: str, mandatory: bool) -> bytes:
        """Return the frame of basic.publish.  Raises: ValueError for an invalid name."""
        output = ClientOutput()
        output.frame_max = self.frame_max
        publish = BasicPublish(
            exchange=checked("exchange", exchange),
            routing_key=checked("routing_key", routing_key),
            mandatory=mandatory,
        )
        output.send(self.channel, publish)
        return output.take()

    def header_start(self, properties: int) -> bytes:
        """Return the header frame up to the body's size, for `properties` bytes of properties.

        Raises: ValueError if they do not fit into a frame.
        """
        if properties > self.properties_bytes_max:
            raise ValueError(f"{properties} bytes of properties; a frame holds {self.frame_max}")
        w = BytesWriter()
        write_header(w, self.channel, BASIC, 0, bytes(properties))
        return w.getvalue()[:_HEADER_START_BYTES]

    def body_size(self, size: int) -> bytes:
        """Return the body's size as encoded in the header."""
        return size.to_bytes(8)

    def body_start(self, size: int) -> bytes:
        """Return the bytes between the properties and a body that fits into one frame."""
        if size == 0:
            return b""  # there is no body frame: the header ends the message
        w = BytesWriter()
        w.write(FRAME_END_OCTET)
        write_frame_head(w, FRAME_BODY, self.channel, size)
        return w.getvalue()

    def long_body(self, body: bytes) -> bytes:
        """Return the bytes between the properties and the end octet, for a body of any size."""
        return b"".join(self._body(body))

    def _body(self, body: bytes) -> Iterator[bytes | memoryview]:
        """Yield the parts of `long_body`."""
        view = memoryview(body)
        for start in range(0, len(body), self.body_bytes_max):
            piece = view[start : start + self.body_bytes_max]
            yield self.body_start(len(piece))
            yield piece

    def publish(
        self, exchange: str, routing_key: str, mandatory: bool, properties: bytes, body: bytes
    ) -> bytes:
        """Return one whole publish.  Raises: ValueError if it cannot be encoded."""
        return b"".join(
            (
                self.method(exchange, routing_key, mandatory),
                self.header_start(len(properties)),
                self.body_size(len(body)),
                properties,
                *self._body(body),
                FRAME_END_OCTET,
            )
        )

    def batch(self, queue: str, body: bytes) -> bytes:
        """Return the publish of many messages to a staging queue.

        `body` is as described in `leveret.wire.content.message_batch`.
        """
        return self.publish("", queue, True, BATCH_PROPERTIES, body)


# -- property bytes --------------------------------------------------------------------------------


def check_properties(raw: bytes) -> None:
    """Check property bytes as a broker checks those of a publish.  Raises: SyntaxFault (502)."""
    skim_properties(raw, 0, len(raw))


def has_empty_headers(raw: bytes) -> bool:
    """Return whether checked property bytes contain an empty headers table."""
    at = int(find_property(raw, HEADERS))
    return at >= 0 and raw[at : at + 4] == bytes(4)


def edit_properties(raw: bytes, drop: list[bytes], more: dict[str, object]) -> bytes:
    """Return checked property bytes without the headers in `drop` and with those in `more`.

    Raises: ValueError for a value that a table cannot contain.
    """
    return edit_headers(raw, drop, more)


def without_headers(raw: bytes) -> bytes:
    """Return checked property bytes without the headers table."""
    return without_property(raw, HEADERS)
