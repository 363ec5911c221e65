"""`GET /api/queues`, `/api/queues/{vhost}` and `/api/queues/{vhost}/{name}`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.admin.stats import QueueListing, QueueStats, queue_stats
from leveret.errors import NotFound
from leveret.management.fields import plain
from leveret.management.routes.shared import (
    BROKER,
    Row,
    found_vhost,
    json_response,
    name_of,
    stream_rows,
    vhost_of,
)


async def queues(request: web.Request) -> web.StreamResponse:
    """Return all queues, or those of a vhost."""
    listing = QueueListing(request.app[BROKER], vhost_of(request))
    return await stream_rows(request, listing.take, row)


async def queue(request: web.Request) -> web.Response:
    """Return one queue."""
    name = name_of(request, "name")
    found = queue_stats(request.app[BROKER], found_vhost(request).name, name)
    if found is None:
        raise NotFound(f"no queue '{name}' in vhost '{request.match_info['vhost']}'")
    return json_response(row(found))


def row(stats: QueueStats) -> Row:
    """Return a queue as RabbitMQ shows it."""
    return {
        "name": stats.name,
        "vhost": stats.vhost,
        "type": stats.kind,
        "durable": stats.durable,
        "auto_delete": stats.auto_delete,
        "exclusive": stats.exclusive,
        "arguments": plain(stats.arguments),
        "policy": stats.policy,
        "operator_policy": stats.operator_policy,
        "effective_policy_definition": plain(stats.effective_policy),
        "state": "running",
        "consumers": stats.consumer_count,
        "messages": stats.ready_count + stats.unacked_count + stats.retry_count,
        "messages_ready": stats.ready_count,
        "messages_unacknowledged": stats.unacked_count,
        "messages_delayed": stats.retry_count,
        "messages_retained": stats.retained_count,
        "message_bytes": stats.ready_bytes + stats.unacked_bytes + stats.retry_bytes,
        "message_bytes_ready": stats.ready_bytes,
        "message_bytes_unacknowledged": stats.unacked_bytes,
        "message_bytes_retained": stats.retained_bytes,
        "message_stats": {
            "publish": stats.published,
            "deliver": stats.delivered,
            "deliver_no_ack": stats.delivered_no_ack,
            "deliver_get": stats.delivered + stats.delivered_no_ack + stats.got,
            "get": stats.got,
            "redeliver": stats.redelivered,
            "ack": stats.acked,
            "deduplicated": stats.deduplicated,
            "rewound": stats.rewound,
        },
    }


ROUTES: Final = (
    web.get("/api/queues", queues),
    web.get("/api/queues/{vhost}", queues),
    web.get("/api/queues/{vhost}/{name}", queue),
)
