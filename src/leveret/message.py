"""A message as it lies in the broker: bytes that were sliced once from the input.

The property bytes of the content header are kept as they came and are decoded only by a feature
that needs one of them.  A message belongs to no queue: its place in each queue that took it (the
sequence) and its redelivery count are that queue's.

Invariants: nothing here is changed after the message was made; `properties` is a legal content
header from its property flags on, checked before the message was made.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr


@final
@mypyc_attr(acyclic=True)
class Address:
    """Where messages were published to, as bytes of UTF-8, each 0 to 255 bytes long.

    `wire` is both as AMQP short strings, ready to be copied into a delivery.
    """

    __slots__ = ("exchange", "routing_key", "wire")

    def __init__(self, exchange: bytes, routing_key: bytes) -> None:
        self.exchange: Final = exchange
        self.routing_key: Final = routing_key
        self.wire: Final = (
            bytes((len(exchange),)) + exchange + bytes((len(routing_key),)) + routing_key
        )


@final
@mypyc_attr(acyclic=True)
class Message:
    """One message: its address, property bytes, body and the time it was taken (ms, Unix epoch).

    `properties` starts with the 16 property flag bits; `size` is the bytes of properties and body.
    `died` tells that this broker dead-lettered it: its `x-death` header is the broker's own.
    `numbered` tells that a client published it with a number that its queues count.
    """

    __slots__ = (
        "address",
        "body",
        "died",
        "numbered",
        "persistent",
        "properties",
        "size",
        "timestamp_ms",
    )

    def __init__(
        self,
        address: Address,
        properties: bytes,
        body: bytes,
        timestamp_ms: i64,
        persistent: bool,
        died: bool = False,
        numbered: bool = False,
    ) -> None:
        self.address: Final = address
        self.properties: Final = properties
        self.body: Final = body
        self.timestamp_ms: Final[i64] = timestamp_ms
        self.persistent: Final = persistent
        self.died: Final = died
        self.numbered: Final = numbered
        self.size: Final[i64] = len(properties) + len(body)
