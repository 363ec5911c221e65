"""A message in the broker's memory: bytes that were sliced once from the input.

The properties are stored as the bytes of the content header, and are only decoded by features that
need a property.  A message does not belong to a queue: each queue stores the message's position
(the sequence) and its redelivery count itself.

Invariants: a message never changes.  `properties` is a valid content header from its property flags
on, checked before the message is created.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: The value of `letters_left` for the maximum number of copies.
ALL_LETTERS: Final = -1

#: The length bytes of short strings.
_LENGTHS: Final = [bytes((length,)) for length in range(256)]


@final
@mypyc_attr(acyclic=True)
class Address:
    """The exchange and the routing key of messages, in UTF-8, each 0 to 255 bytes long.

    `wire` contains both as AMQP short strings, to be copied into deliveries.

    Messages usually share addresses.  A few have their own address with broker-internal data, which
    is never sent to clients.  `blind` is the header BCC as entries of a table, or a mark that CC is
    void (`copies`).  `letters_left` is the number of further copies that dead-lettering may make by
    itself (ALL_LETTERS: it has made none).
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
    """A message: its address, properties, body, and the time of its receipt (ms, Unix epoch).

    `properties` starts with the 16 property flag bits.  `size` is the size of the properties, the
    body and the address's `blind`.  `died` means that this broker dead-lettered the message, so its
    `x-death` header is the broker's own.  `numbered` means that a client published it with a
    publishing id for publisher deduplication.
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
        """Return a message with the same body but the given address, properties and time.

        The copy has its publisher's publishing id only if `numbered` is set, because each queue
        counts an id once.  It counts as dead-lettered if this message does, or if `died` is set.
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
    """The base of classes that add the data of one queue or one exchange to a message."""

    def __init__(self, message: Message) -> None:
        self.message: Final = message
