"""`GET /api/consumers` and `/api/consumers/{vhost}`: the consumers of queues and streams."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.management.api_route import ApiRoute
from leveret.management.fields import as_unicode, plain
from leveret.management.gate import only_of
from leveret.management.rights import LOOKING
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.node.identity import node_name
from leveret.management.routes.shared import BROKER, Row, vhost_of
from leveret.session import stats as sessions
from leveret.session.stats import ConsumerStats, Ends


async def consumers(request: web.Request) -> web.StreamResponse:
    """Return all visible consumers, or those of a vhost."""
    found = sessions.consumers(request.app[BROKER], vhost_of(request), only_of(request))
    return await stream_rows(request, found, row)


def row(stats: ConsumerStats) -> Row:
    """Return a consumer as in RabbitMQ's API."""
    ends = stats.ends
    return {
        "consumer_tag": stats.tag,
        "queue": {"name": stats.queue, "vhost": ends.vhost},
        "ack_required": stats.ack_required,
        "exclusive": stats.exclusive,
        "prefetch_count": stats.prefetch_count,
        "messages_unacknowledged": stats.unacked,
        "active": stats.active,
        "activity_status": "single_active" if not stats.shared and stats.active else _status(stats),
        "arguments": plain(stats.arguments),
        "consumer_timeout": stats.consumer_timeout_ms if stats.consumer_timeout_ms > 0 else None,
        "channel_details": {
            "name": f"{ends.connection} ({stats.number})",
            "number": stats.number,
            "node": node_name(),
            "user": ends.user,
            "connection_name": ends.connection,
            **end_of(ends),
        },
    }


def end_of(ends: Ends) -> Row:
    """Return the client's end of a connection, with the name that the client gave it."""
    found: Row = {"peer_host": ends.peer.host, "peer_port": ends.peer.port}
    if isinstance(ends.given_name, str):
        found["user_provided_name"] = as_unicode(ends.given_name)
    return found


def _status(stats: ConsumerStats) -> str:
    return "up" if stats.active else "waiting"


ROUTES: Final = (
    ApiRoute("GET", "/api/consumers", consumers, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/consumers/{vhost}", consumers, LOOKING, rows=True, heavy=True),
)
