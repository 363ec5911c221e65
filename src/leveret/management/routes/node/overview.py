"""`GET /api/overview`: what there is in the broker altogether."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from leveret import __version__
from leveret.broker.admin.stats import QueueListing, Totals
from leveret.management.routes.shared import BROKER, SLICE_ROWS, json_response


async def overview(request: web.Request) -> web.Response:
    """Return product and totals."""
    broker = request.app[BROKER]
    totals = Totals(broker)
    consumers = ready = unacked = 0
    listing = QueueListing(broker, None)
    while taken := listing.take(SLICE_ROWS):
        consumers += sum(queue.consumer_count for queue in taken)
        ready += sum(queue.ready_count for queue in taken)
        unacked += sum(queue.unacked_count for queue in taken)
        await asyncio.sleep(0)
    return json_response(
        {
            "product_name": "Leveret",
            "product_version": __version__,
            "object_totals": {
                "connections": totals.connection_count,
                "consumers": consumers,
                "exchanges": totals.exchange_count,
                "queues": totals.queue_count,
            },
            "queue_totals": {
                "messages": ready + unacked,
                "messages_ready": ready,
                "messages_unacknowledged": unacked,
            },
        }
    )


ROUTES: Final = (web.get("/api/overview", overview),)
