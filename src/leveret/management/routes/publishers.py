"""`GET /api/publishers/{vhost}/{queue}`: how far those have come that number their messages.

Who asks over TCP needs any permission for the queue.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats import PublisherListing, PublisherStats
from leveret.management.gate import may_see
from leveret.management.routes.shared import BROKER, Row, found_vhost, name_of, stream_rows


async def publishers(request: web.Request) -> web.StreamResponse:
    """Return the publishers of a queue or a stream."""
    queue = name_of(request, "queue")
    may_see(request, queue)
    vhost = found_vhost(request)
    vhost.queue(queue, None)
    listing = PublisherListing(request.app[BROKER], vhost.name, queue)
    return await stream_rows(request, listing.take, _row)


def _row(stats: PublisherStats) -> Row:
    """Return a publisher; `last` is when it sent last, in ms since 1970."""
    return {
        "publisher": stats.name,
        "publishing_id": stats.number,
        "last": stats.time_ms,
    }


ROUTES: Final = (web.get("/api/publishers/{vhost}/{queue}", publishers),)
