"""A message in the broker's memory: bytes that were sliced once from the input.

The property bytes of the content header are kept as received, and only decoded by a feature that
needs a property.  A message belongs to no queue: its position in a queue (the sequence) and its
redelivery count are kept by that queue.

Invariants: a message never changes; `properties` is a legal content header from its property flags
on, checked before the message was created.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: The value for all the copies that dead-lettering may make of a message by itself.
ALL_LETTERS: Final = -1

#: The length prefixes of short strings.
_LENGTHS: Final = [bytes((length,)) for length in range(256)]


@final
@mypyc_attr(acyclic=True)
class Address:
    """The exchange and routing key of messages, as bytes of UTF-8, each 0 to 255 bytes long.

    `wire` is both as AMQP short strings, ready to be copied into a delivery.

    A few messages have an address of their own, with broker-internal data on their route: `blind`
    is the header BCC as entries of a table, or a mark that CC is void (`copies`), and
    `letters_left` is how many more copies dead-lettering may make by itself (ALL_LETTERS: it has
    made none).  Clients see neither.
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
    """One message: its address, property bytes, body and the time it was received (ms, Unix epoch).

    `properties` starts with the 16 property flag bits; `size` is the bytes of properties and body,
    and of the address's data for this message alone.
    `died` means that this broker dead-lettered it: its `x-death` header is the broker's own.
    `numbered` means that a client published it with a number for publisher deduplication.
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
        """Return a message with the same body, another address, other properties and this time.

        The copy only has its publisher's number if `numbered` is set, because each queue counts a
        number once; it counts as dead-lettered if this message was, or if `died` is set.
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
    """A message with the data that one queue or one exchange keeps on it."""

    def __init__(self, message: Message) -> None:
        self.message: Final = message
