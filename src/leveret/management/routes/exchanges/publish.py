"""`POST /api/exchanges/{vhost}/{name}/publish`: publishes a message and waits for its confirm."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from leveret.errors import PreconditionFailed
from leveret.management.api_route import TABLE, TEXT, ApiRoute
from leveret.management.bodies import object_of, table_of, table_or_none, text_of
from leveret.management.gate import may_write
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MANAGEMENT
from leveret.management.routes.shared import (
    BROKER,
    as_user,
    exchange_of,
    found_vhost,
    json_response,
)
from leveret.wire.methods import (
    BasicAck,
    BasicNack,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
)
from leveret.wire.properties import BasicProperties

#: Characters of base64 decoded per slice (5 ms).
_DECODED_AT_ONCE: Final = 1024 * 1024

_NOT_BASE_64: Final = "the field 'payload' is not valid base64"


async def publish(request: web.Request) -> web.Response:
    """Publish a message, and return after its confirm whether it was routed to a queue."""
    body = await object_of(request)
    routing_key = text_of(body, "routing_key")
    payload = await _payload(text_of(body, "payload"), text_of(body, "payload_encoding"))
    properties = properties_of(table_of(body, "properties"))
    vhost = found_vhost(request)
    name = exchange_of(request, "name")
    may_write(request, name, "exchange")
    exchange = vhost.exchanges.existing(name).name
    broker = request.app[BROKER]
    if broker.blocked:
        # An AMQP client would wait, but an HTTP client should get an answer.
        reason = f"publishers are blocked: {broker.blocked_reason}"
        answer = {"error": "service_unavailable", "reason": reason}
        return json_response(answer, 503, {"Retry-After": "5"})
    async with as_user(request, vhost.name) as channel:
        await channel.request(ConfirmSelect(), ConfirmSelectOk)
        found = await channel.publish(
            exchange, routing_key, properties, payload, BasicAck, BasicNack
        )
    if isinstance(found[-1].method, BasicNack):
        raise PreconditionFailed("Unable to publish message. Check queue limits.")
    return json_response({"routed": not isinstance(found[0].method, BasicReturn)})


async def _payload(text: str, encoding: str) -> bytes:
    """Return the body of a message.  Raises: PreconditionFailed (400 in HTTP)."""
    if encoding == "string":
        return text.encode()
    if encoding != "base64":
        raise PreconditionFailed("the field 'payload_encoding' must be string or base64")
    decoded: list[bytes] = []
    last = ""
    for start in range(0, len(text), _DECODED_AT_ONCE):
        if last.endswith("="):
            raise PreconditionFailed(_NOT_BASE_64)
        if decoded:
            await next_slice()
        last = text[start : start + _DECODED_AT_ONCE]
        try:
            decoded.append(base64.b64decode(last, validate=True))
        except ValueError:
            raise PreconditionFailed(_NOT_BASE_64) from None
    return b"".join(decoded)


def properties_of(given: Mapping[str, object]) -> bytes:
    """Return encoded AMQP properties; unknown properties are ignored.

    Raises: PreconditionFailed (400 in HTTP) for an invalid value of a property.
    """
    fields: dict[str, Any] = {
        name: value for name, value in given.items() if name in BasicProperties.FIELDS
    }
    if "headers" in fields:
        fields["headers"] = table_or_none(fields, "headers")
    try:
        return BasicProperties(**fields).encode()
    except (TypeError, ValueError, OverflowError) as wrong:
        raise PreconditionFailed(f"the field 'properties' is invalid: {wrong}") from None


ROUTES: Final = (
    ApiRoute(
        "POST",
        "/api/exchanges/{vhost}/{name}/publish",
        publish,
        MANAGEMENT,
        body={
            "routing_key": TEXT,
            "payload": TEXT,
            "payload_encoding": {"enum": ["string", "base64"]},
            "properties": TABLE,
        },
        required=("routing_key", "payload", "payload_encoding", "properties"),
        logged=False,
    ),
)
