"""Reading all queues of a broker to their ends, as bytes: what is the same need not be parsed.

A marker is published to each queue, which is then consumed up to it.  It comes last: it is the
newest message, of the least priority.  The same queue on the same channel of a fresh connection
gives the same bytes, so that a reading is compared with an earlier one in no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from support.wire import raw
from support.wire.raw_codec import decode_properties, method, publish
from support.wire.raw_stream import Inbox

#: What ends every reading: nobody else publishes it.
MARKER: Final = b"<the end of what was asked for>"

#: How the method of each delivery begins: its ids and the consumer's tag.
DELIVER: Final = b"\x00\x3c\x00\x3c\x01r"
FRAME_HEADER_BYTES: Final = 7

#: A queue that gives nothing for so long does not go on.
SILENCE_SECONDS_MAX: Final = 10.0

VHOST: Final = "/"


@dataclass(frozen=True)
class Content:
    """All that a message carries; `properties` as they came, from the flags on."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


@dataclass(frozen=True)
class Message:
    """A message that was read."""

    id: str
    content: Content
    redelivered: bool


@dataclass
class Reading:
    """What a broker gave: the bytes of each queue, and in words what was wrong."""

    queues: dict[str, bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_all(
    connection: raw.Connection, channels: Mapping[str, int], streams: Sequence[str]
) -> Reading:
    """Read the queues of `channels` to their ends, each on its channel; `streams` are streams."""
    reading = Reading()
    connection.socket.settimeout(SILENCE_SECONDS_MAX)
    for queue, channel in channels.items():
        connection.send(*requests(channel, queue, is_stream=queue in streams))
        try:
            reading.queues[queue] = _to_marker(connection)
        except (raw.Closed, OSError) as error:
            reading.problems.append(f"{queue}: {error!r} instead of its end")
            break
    return reading


def requests(channel: int, queue: str, *, is_stream: bool) -> list[bytes]:
    """Return the frames that ask for all of a queue and end it with the marker."""
    arguments = {"x-stream-offset": "first"} if is_stream else {}
    return [
        method(channel, "channel.open"),
        method(channel, "basic.qos", prefetch_count=0xFFFF),
        publish(channel, "", queue, MARKER, delivery_mode=2),
        method(
            channel, "basic.consume", queue=queue, consumer_tag="r", arguments=arguments,
            no_ack=not is_stream,
        ),
    ]  # fmt: skip


def up_to_marker(data: bytes | bytearray) -> bytes:
    """Return what comes before the delivery of the marker, which ends `data`."""
    return bytes(data[: data.rindex(DELIVER) - FRAME_HEADER_BYTES])


def _to_marker(connection: raw.Connection) -> bytes:
    """Return what comes before the marker's delivery.  Raises: Closed, TimeoutError."""
    end = MARKER + b"\xce"
    pieces = bytearray(connection.buffer)
    connection.buffer = b""
    while not pieces.endswith(end):
        piece = connection.socket.recv(1 << 20)
        if not piece:
            raise raw.Closed(f"the broker closed the socket after {len(pieces)} bytes")
        pieces += piece
    return up_to_marker(pieces)


def messages_of(data: bytes) -> list[Message]:
    """Return the messages in what `read_all` got of one queue,.

    Raises: AssertionError: something else came.
    """
    found: list[Message] = []
    for got in Inbox().feed(data):
        if got.name in ("channel.open-ok", "basic.qos-ok", "basic.consume-ok"):
            continue
        assert got.name == "basic.deliver", got
        content = Content(got.exchange, got.routing_key, got.properties, got.body)
        id_ = decode_properties(got.properties).get("message_id", "")
        found.append(Message(id_, content, got.redelivered))
    return found
