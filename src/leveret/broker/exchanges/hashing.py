"""The value of a message that a hashing exchange hashes: routing key, header or property.

Source: RabbitMQ's plugin of the type x-consistent-hash.
"""

from __future__ import annotations

from typing import Final, final

from leveret.broker.exchanges.exchange import Routing
from leveret.errors import PreconditionFailed
from leveret.routing.headers import normal_value
from leveret.wire.properties import (
    property_correlation_id,
    property_message_id,
    property_timestamp,
)

_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")


@final
class HashSource:
    """The source of the value to hash, from the arguments of the exchange.

    Raises: PreconditionFailed (406) for empty or contradicting arguments.
    """

    def __init__(self, arguments: dict[str, object]) -> None:
        self._header = _text(arguments, "hash-header")
        self._property = _text(arguments, "hash-property")
        if self._header and self._property:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if self._property and self._property not in _PROPERTIES:
            raise PreconditionFailed(f"Unsupported property: {self._property}")

    def value(self, routing: Routing) -> bytes:
        """Return the bytes to hash, or b"" if the message lacks the header or property."""
        if self._header:
            value = routing.headers().get(self._header)
            if value is None:
                return b""
            normal = normal_value(value)
            return (normal if isinstance(normal, str) else repr(normal)).encode(
                "utf-8", "surrogateescape"
            )
        if self._property:
            return self._property_value(routing)
        return routing.routing_key.encode("utf-8", "surrogateescape")

    def _property_value(self, routing: Routing) -> bytes:
        routing.dynamic = True
        raw = routing.properties
        if not raw:
            return b""
        if self._property == "timestamp":
            stamp = property_timestamp(raw)
            return b"" if stamp is None else b"%d" % stamp
        text = (
            property_message_id(raw)
            if self._property == "message_id"
            else property_correlation_id(raw)
        )
        return b"" if text is None else text.encode("utf-8", "surrogateescape")


def _text(arguments: dict[str, object], name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise PreconditionFailed(f"invalid arg '{name}': must name a header or a property")
    return value
