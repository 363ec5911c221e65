"""`GET /api/sinks`, `/api/sinks/{vhost}`: who commits batches, and how far; DELETE forgets one."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats import SinkListing, SinkStats
from leveret.errors import NotFound
from leveret.management.routes.shared import (
    BROKER,
    OPERATOR,
    Row,
    found_vhost,
    stream_rows,
    vhost_of,
)


async def sinks(request: web.Request) -> web.StreamResponse:
    """Return all sinks, or those of a vhost."""
    listing = SinkListing(request.app[BROKER], vhost_of(request))
    return await stream_rows(request, listing.take, _row)


async def forget(request: web.Request) -> web.Response:
    """Forget a sink, so that it may begin anew."""
    async with request.app[OPERATOR].changing():
        if not found_vhost(request).sinks.forget(request.match_info["sink"]):
            raise NotFound
    return web.Response(status=204)


def _row(stats: SinkStats) -> Row:
    """Return a sink; `last` is when it committed last, in ms since 1970."""
    return {
        "sink": stats.name,
        "vhost": stats.vhost,
        "batch": stats.batch,
        "last": stats.time_ms,
        "releasing": stats.releasing,
        "messages": stats.waiting,
        "message_stats": {"released": stats.released, "unroutable": stats.unroutable},
    }


ROUTES: Final = (
    web.get("/api/sinks", sinks),
    web.get("/api/sinks/{vhost}", sinks),
    web.delete("/api/sinks/{vhost}/{sink}", forget),
)
