"""`GET /api/exchanges` and `/api/exchanges/{vhost}`; the default exchange has the empty name."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.admin.stats import ExchangeListing, ExchangeStats
from leveret.management.fields import plain
from leveret.management.routes.shared import BROKER, Row, stream_rows, vhost_of


async def exchanges(request: web.Request) -> web.StreamResponse:
    """Return all exchanges, or those of a vhost."""
    listing = ExchangeListing(request.app[BROKER], vhost_of(request))
    return await stream_rows(request, listing.take, row)


def row(stats: ExchangeStats) -> Row:
    """Return an exchange as RabbitMQ shows it."""
    return {
        "name": stats.name,
        "vhost": stats.vhost,
        "type": stats.kind,
        "durable": stats.durable,
        "auto_delete": stats.auto_delete,
        "internal": stats.internal,
        "arguments": plain(stats.arguments),
        "policy": stats.policy,
        "message_stats": {"publish_in": stats.published_in},
    }


ROUTES: Final = (
    web.get("/api/exchanges", exchanges),
    web.get("/api/exchanges/{vhost}", exchanges),
)
