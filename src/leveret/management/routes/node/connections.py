"""`GET /api/connections`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.management.fields import plain
from leveret.management.routes.shared import BROKER, Row, stream_rows
from leveret.session.stats import ConnectionListing, ConnectionStats


async def connections(request: web.Request) -> web.StreamResponse:
    """Return all client connections."""
    listing = ConnectionListing(request.app[BROKER])
    return await stream_rows(request, listing.take, row)


def row(stats: ConnectionStats) -> Row:
    """Return a connection as RabbitMQ shows it."""
    found: Row = {
        "name": stats.name,
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "user": stats.user,
        "vhost": stats.vhost,
        "state": stats.state,
        "auth_mechanism": stats.mechanism,
        "host": stats.host,
        "port": stats.port,
        "peer_host": stats.peer_host,
        "peer_port": stats.peer_port,
        "channels": stats.channel_count,
        "channel_max": stats.channels_max,
        "frame_max": stats.frame_bytes_max,
        "timeout": stats.heartbeat_seconds,
        "connected_at": stats.connected_at_ms,
        "recv_oct": stats.received_bytes,
        "send_oct": stats.sent_bytes,
        "client_properties": plain(stats.client_properties),
    }
    name = stats.client_properties.get("connection_name")
    if isinstance(name, str):
        found["user_provided_name"] = name
    return found


ROUTES: Final = (web.get("/api/connections", connections),)
