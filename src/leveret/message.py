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

#: What stands for all the copies that dead-lettering may make of a message by itself.
ALL_LETTERS: Final = -1

#: The length of a short string as it precedes the string.
_LENGTHS: Final = [bytes((length,)) for length in range(256)]


@final
@mypyc_attr(acyclic=True)
class Address:
    """Where messages were published to, as bytes of UTF-8, each 0 to 255 bytes long.

    `wire` is both as AMQP short strings, ready to be copied into a delivery.

    A few messages have an address of their own, with what the broker alone knows of their way:
    `blind` is the header BCC as entries of a table, or what says that CC is void (`copies`), and
    `letters_left` how many more copies dead-lettering may make by itself (ALL_LETTERS: it has made
    none).  No client is shown either.
    """

    __slots__ = ("blind", "blind_bytes", "exchange", "letters_left", "routing_key", "wire")

    def __init__(
        self,
        exchange: bytes,
        routing_key: bytes,
        blind: bytes = b"",
        letters_left: i64 = ALL_LETTERS,
    ) -> None:
        self.exchange: Final = exchange
        self.routing_key: Final = routing_key
        self.blind: Final = blind
        self.blind_bytes: Final[i64] = len(blind)
        self.letters_left: Final[i64] = letters_left
        self.wire: Final = (
            _LENGTHS[len(exchange)] + exchange + _LENGTHS[len(routing_key)] + routing_key
        )


@final
@mypyc_attr(acyclic=True)
class Message:
    """One message: its address, property bytes, body and the time it was taken (ms, Unix epoch).

    `properties` starts with the 16 property flag bits; `size` is the bytes of properties and body,
    and of what the address keeps for the message alone.
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
        self.size: Final[i64] = len(properties) + len(body) + address.blind_bytes

    def copied(
        self,
        address: Address,
        properties: bytes,
        timestamp_ms: i64,
        numbered: bool = False,
        died: bool = False,
    ) -> Message:
        """Return the same body under another address, with other properties, taken at that time.

        The copy has the number that its publisher gave only where `numbered` says so, for a number
        is counted once by each queue; it was dead-lettered where this message was, or `died` says.
        """
        return Message(
            address,
            properties,
            self.body,
            timestamp_ms,
            self.persistent,
            self.died or died,
            numbered,
        )


@mypyc_attr(acyclic=True)
class PlacedMessage:
    """A message with what one queue or one exchange knows of it."""

    def __init__(self, message: Message) -> None:
        self.message: Final = message
