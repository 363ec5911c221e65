"""`GET /api/bindings` and `/api/bindings/{vhost}`."""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote_plus

from aiohttp import web

from leveret.broker.admin.stats import BindingListing, BindingStats
from leveret.management.fields import plain
from leveret.management.routes.shared import BROKER, Row, stream_rows, vhost_of


async def bindings(request: web.Request) -> web.StreamResponse:
    """Return all bindings, or those of a vhost."""
    listing = BindingListing(request.app[BROKER], vhost_of(request))
    return await stream_rows(request, listing.take, row)


def row(stats: BindingStats) -> Row:
    """Return a binding as RabbitMQ shows it."""
    return {
        "source": stats.source,
        "vhost": stats.vhost,
        "destination": stats.destination,
        "destination_type": "queue" if stats.to_queue else "exchange",
        "routing_key": stats.binding_key,
        "arguments": plain(stats.arguments),
        "properties_key": properties_key(stats.binding_key, stats.arguments_key),
    }


def properties_key(binding_key: str, arguments_key: bytes) -> str:
    """Return what tells a binding from others of its pair: the key, and a digest of arguments.

    As in RabbitMQ it is `~` for the empty key alone, and a `~` inside a key is encoded.
    """
    key = quote_plus(binding_key).replace("~", "%7E")
    if not arguments_key:
        return key or "~"
    digest = hashlib.blake2b(arguments_key, digest_size=16).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


ROUTES: Final = (
    web.get("/api/bindings", bindings),
    web.get("/api/bindings/{vhost}", bindings),
)
