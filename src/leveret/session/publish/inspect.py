"""Inspects the properties of a publish that the broker acts on, the slow path of a publish.

Two bytes of property flags show whether a message needs the inspection.  The order of the checks is
RabbitMQ's: reply_to, user_id, expiration, then the headers CC and BCC.  The header for publisher
deduplication is Leveret's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.cc_bcc import blind_entries, copy_keys, without_bcc
from leveret.broker.attributes.expiration import check_expiration
from leveret.broker.attributes.special_headers import COPIES, NUMBERED, special_headers
from leveret.broker.vhost.replies import REPLY_NAME
from leveret.errors import PreconditionFailed
from leveret.limits import TABLE_BYTES_PER_COST
from leveret.message import Address, Message
from leveret.session.publish.route import Route, check_publisher
from leveret.wire.edit import with_text
from leveret.wire.properties import (
    REPLY_TO,
    USER_ID,
    find_property,
    property_text,
)

if TYPE_CHECKING:
    from leveret.broker.queue.target import Target
    from leveret.session.channel.channel import ServerChannel

# Flags in the first and the second byte; literals, because mypyc makes constants only of these.
_HEADERS: Final = 0x20
_REPLY_TO: Final = 0x02
_EXPIRATION: Final = 0x01
_USER_ID: Final = 0x10

#: The flags, in the first and the second byte, of the properties that are inspected.
INSPECTED: Final = 0x23
INSPECTED_LOW: Final = 0x10

#: The reply_to that requests a direct reply-to address, as a short string.
_ASKS: Final = bytes((len(REPLY_NAME),)) + REPLY_NAME.encode()


@final
class Inspected:
    """The result of an inspection: the properties to store, and additional keys to route by.

    `numbered` is True if the message has a number for publisher deduplication.  `blind` is the
    header BCC, which is kept in the message's address and removed from `properties`.
    """

    def __init__(
        self, properties: bytes, more_keys: list[str], numbered: bool, blind: bytes = b""
    ) -> None:
        self.blind: Final = blind
        self.properties: Final = properties
        self.more_keys: Final = more_keys
        self.numbered: Final = numbered


def inspect(channel: ServerChannel, properties: bytes) -> Inspected | None:
    """Inspect well-formed property bytes; return None if the message needs no change.

    Raises: PreconditionFailed (406) for direct reply-to without a reply consumer, a user_id other
    than the login's, an invalid expiration, CC or BCC other than an array of strings, or an invalid
    number for publisher deduplication.
    """
    channel.connection.spend(len(properties) // TABLE_BYTES_PER_COST)
    kept = _inspect_plain(channel, properties)
    special = special_headers(properties) if properties[0] & _HEADERS else 0
    if special == 0:
        return None if kept is properties else Inspected(kept, [], False)
    numbered = special & NUMBERED != 0 and channel.vhost.numbered(kept) is not None
    if special & COPIES == 0:
        return Inspected(kept, [], numbered)
    more_keys = copy_keys(kept)
    blind = blind_entries(kept)
    return Inspected(without_bcc(kept) if blind else kept, more_keys, numbered, blind)


def addressed(address: Address, inspected: Inspected) -> Address:
    """Return the address of a message: its own if it has BCC keys, else `address`."""
    if not inspected.blind:
        return address
    return Address(address.exchange, address.routing_key, inspected.blind)


def inspected_message(
    channel: ServerChannel,
    route: Route,
    inspected: Inspected,
    targets: list[Target],
    body: bytes,
    persistent: bool,
) -> Message:
    """Count a publish, and return its message.

    Raises: AccessRefused (403), PreconditionFailed (406) as `check_publisher`.
    """
    connection = channel.connection
    properties = inspected.properties
    if inspected.numbered:
        check_publisher(channel.vhost, properties, targets, connection.access.owner)
    route.exchange.published_in += 1
    connection.count_published(len(body))
    address = addressed(route.address, inspected)
    now_ms = connection.core.now_ms
    return Message(address, properties, body, now_ms, persistent, False, inspected.numbered)


def _inspect_plain(channel: ServerChannel, properties: bytes) -> bytes:
    """Check all properties but the headers; return the properties to store."""
    flags: i64 = properties[0]
    kept = properties
    if flags & _REPLY_TO:
        kept = _with_address(channel, properties)
    if properties[1] & _USER_ID:
        _check_user(channel, properties)
    if flags & _EXPIRATION:
        check_expiration(properties)
    return kept


def _with_address(channel: ServerChannel, properties: bytes) -> bytes:
    """Replace the reply_to that requests an address with the channel's reply address."""
    place = find_property(properties, REPLY_TO)
    if properties[place : place + len(_ASKS)] != _ASKS:
        return properties
    queue = channel.replies
    if queue is None or queue.deleted:
        raise PreconditionFailed("fast reply consumer does not exist")
    return with_text(properties, REPLY_TO, queue.name)


def _check_user(channel: ServerChannel, properties: bytes) -> None:
    """Refuse a user_id other than the login's, unless the user is an impersonator."""
    connection = channel.connection
    claimed = property_text(properties, USER_ID)
    if claimed == connection.user:
        return
    user = connection.broker.users.by_name.get(connection.user)
    if user is None or "impersonator" not in user.tags:
        raise PreconditionFailed(
            f"user_id property set to '{claimed}' but authenticated user was '{connection.user}'"
        )
