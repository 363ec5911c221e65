"""`/api/channels`: the channels of client connections."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.errors import NotFound
from leveret.limits import CONSUMERS_SHOWN_MAX
from leveret.management.api_route import ApiRoute
from leveret.management.gate import only_of
from leveret.management.rights import LOOKING
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.node.consumers import end_of
from leveret.management.routes.node.consumers import row as consumer_row
from leveret.management.routes.node.identity import node_name
from leveret.management.routes.shared import BROKER, Row, row_response, vhost_of
from leveret.session import stats as sessions
from leveret.session.stats import ChannelStats, find_connection


async def channels(request: web.Request) -> web.StreamResponse:
    """Return all visible channels, or those of a vhost or a connection."""
    broker = request.app[BROKER]
    connection = request.match_info.get("connection")
    user = only_of(request)
    if connection is not None and find_connection(broker, connection, user) is None:
        raise NotFound(f"no connection '{connection}'")
    found = sessions.channels(broker, vhost_of(request), user, connection)
    return await stream_rows(request, found, row)


async def channel(request: web.Request) -> web.Response:
    """Return one channel with its consumers, if it is visible to the user."""
    name = request.match_info["channel"]
    # The name of a channel consists of its connection's name and its number.
    connection = name.rpartition(" (")[0]
    for stats in sessions.channels(request.app[BROKER], None, only_of(request), connection):
        if stats is not None and stats.name == name:
            details = [consumer_row(one) for one in stats.first_consumers(CONSUMERS_SHOWN_MAX)]
            return row_response(
                request,
                {**row(stats), "consumer_details": details, "deliveries": [], "publishes": []},
            )
    raise NotFound(f"no channel '{name}'")


def row(stats: ChannelStats) -> Row:
    """Return a channel as in RabbitMQ's API."""
    return {
        "name": stats.name,
        "number": stats.number,
        "node": node_name(),
        "user": stats.ends.user,
        "user_who_performed_action": stats.ends.user,
        "vhost": stats.ends.vhost,
        "state": stats.state,
        "confirm": stats.confirm,
        "transactional": stats.transactional,
        "consumer_count": stats.consumer_count,
        "prefetch_count": stats.prefetch_count,
        "global_prefetch_count": stats.global_prefetch_count,
        "messages_unacknowledged": stats.unacked,
        "messages_unconfirmed": stats.unconfirmed if stats.confirm else 0,
        "messages_uncommitted": stats.uncommitted,
        "acks_uncommitted": stats.acks_uncommitted,
        "connection_details": {"name": stats.ends.connection, **end_of(stats.ends)},
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/channels", channels, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/channels/{channel}", channel, LOOKING),
    ApiRoute(
        "GET", "/api/connections/{connection}/channels", channels, LOOKING, rows=True, heavy=True
    ),
    ApiRoute("GET", "/api/vhosts/{vhost}/channels", channels, LOOKING, rows=True, heavy=True),
)
