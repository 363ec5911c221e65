"""`GET /api/sinks/{vhost}`: who commits batches, and how far; DELETE forgets one.

Who asks over TCP sees and forgets the sinks whose names he may *configure*, as if they were queues.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats import SinkListing, SinkStats
from leveret.errors import AccessRefused, NotFound
from leveret.management.gate import may_configure
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, stream_rows


async def sinks(request: web.Request) -> web.StreamResponse:
    """Return the sinks of a vhost."""
    listing = SinkListing(request.app[BROKER], found_vhost(request).name)

    def take(count: int) -> list[SinkStats]:
        while taken := listing.take(count):
            seen = [stats for stats in taken if _may_see(request, stats.name)]
            if seen:
                return seen
        return []

    return await stream_rows(request, take, _row)


async def forget(request: web.Request) -> web.Response:
    """Forget a sink, so that it may begin anew."""
    name = request.match_info["sink"]
    may_configure(request, name)
    async with request.app[OPERATOR].changing():
        if not found_vhost(request).sinks.forget(name):
            raise NotFound
    return web.Response(status=204)


def _may_see(request: web.Request, sink: str) -> bool:
    try:
        may_configure(request, sink)
    except AccessRefused:
        return False
    return True


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
    web.get("/api/sinks/{vhost}", sinks),
    web.delete("/api/sinks/{vhost}/{sink}", forget),
)
