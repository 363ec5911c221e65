"""`GET /api/sinks/{vhost}`: who commits batches, how far, and what is staged; DELETE forgets one.

A sink is its name and its destination; DELETE forgets all of a name, or the one that the query
parameter `destination` says.

Who asks over TCP sees and forgets the sinks whose names he may *configure*, as if they were queues.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats import SinkListing, SinkStats
from leveret.errors import AccessRefused, NotFound
from leveret.management.gate import may_configure
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, stream_rows
from leveret.names import Name


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
    may_configure(request, Name(name))
    async with request.app[OPERATOR].changing():
        destination = request.query.get("destination")
        if not found_vhost(request).sinks.forget(name, destination):
            raise NotFound(f"no sink '{name}' in vhost '{request.match_info['vhost']}'")
    return web.Response(status=204)


def _may_see(request: web.Request, sink: str) -> bool:
    try:
        may_configure(request, Name(sink))
    except AccessRefused:
        return False
    return True


def _row(stats: SinkStats) -> Row:
    """Return a sink; `last` is when it committed last, in ms since 1970."""
    committed = stats.batch >= 0
    return {
        "sink": stats.name,
        "destination": stats.destination or None,
        "vhost": stats.vhost,
        "batch": stats.batch if committed else None,
        "last": stats.time_ms if committed else None,
        "releasing": stats.releasing,
        "messages": stats.waiting,
        "staging": {
            "queues": stats.staging_queues,
            "messages": stats.staged,
            "message_bytes": stats.staged_bytes,
            "age_ms": stats.age_ms,
            "owners": stats.owners,
        },
        "message_stats": {
            "released": stats.released,
            "unroutable": stats.unroutable,
            "dropped": stats.dropped,
            "repeated_commits": stats.repeats,
        },
    }


ROUTES: Final = (
    web.get("/api/sinks/{vhost}", sinks),
    web.delete("/api/sinks/{vhost}/{sink}", forget),
)
