"""`/api/connections`: AMQP connections by name, user or vhost; DELETE closes them."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.scheduler.link import close_links
from leveret.errors import NotFound
from leveret.management.api_route import ApiRoute
from leveret.management.fields import as_unicode, plain
from leveret.management.gate import Barred, access_of, only_of
from leveret.management.rights import LOOKING, MANAGEMENT, MONITORING_TAG
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.node.identity import node_name
from leveret.management.routes.shared import BROKER, OPERATOR, Row, row_response, vhost_of
from leveret.session import stats as sessions
from leveret.session.stats import ConnectionStats, find_connection


async def connections(request: web.Request) -> web.StreamResponse:
    """Return all visible client connections, or those of a user or a vhost."""
    user = _user(request) if "user" in request.match_info else only_of(request)
    found = sessions.connections(request.app[BROKER], vhost_of(request), user)
    return await stream_rows(request, found, row)


async def connection(request: web.Request) -> web.Response:
    """Return one connection, if it is visible to the user."""
    name = request.match_info["connection"]
    found = find_connection(request.app[BROKER], name, only_of(request))
    if found is None:
        raise NotFound(f"no connection '{name}'")
    return row_response(request, row(ConnectionStats(found)))


async def close(request: web.Request) -> web.Response:
    """Close one connection with reply code 320; the header X-Reason sets the reply text.

    Raises: Barred (401) for another user's connection that the caller may see but not close;
    NotFound (404) if the connection is not visible to the caller.
    """
    name = request.match_info["connection"]
    user = only_of(request)
    found = find_connection(request.app[BROKER], name, user)
    if found is None:
        access = access_of(request)
        if user is not None and access is not None and access.has_tag(MONITORING_TAG):
            raise Barred("Not administrator user")
        raise NotFound(f"no connection '{name}'")
    async with request.app[OPERATOR].changing():
        found.force(_reason(request))
    return web.Response(status=204)


async def close_all(request: web.Request) -> web.Response:
    """Close all connections of a user."""
    user = _user(request)
    reason = _reason(request)
    operator = request.app[OPERATOR]
    broker = request.app[BROKER]
    operator.begin()
    closing = broker.core.scheduler.start(close_links(list(broker.links), reason, user=user))
    await operator.ended(closing)
    return web.Response(status=204)


def _user(request: web.Request) -> str:
    """Return the user in the path.  Raises: Barred (401) for a user not visible to the caller."""
    user = request.match_info["user"]
    if only_of(request) not in (None, user):
        raise Barred("User not authorised to access object")
    return user


def _reason(request: web.Request) -> str:
    """Return the reply text for the clients whose connections are closed."""
    return as_unicode(request.headers.get("X-Reason", "")) or "Closed via management plugin"


def row(stats: ConnectionStats) -> Row:
    """Return a connection as in RabbitMQ's API."""
    found: Row = {
        "name": stats.name,
        "node": node_name(),
        "type": "network",
        "user_who_performed_action": stats.user,
        "protocol": stats.protocol,
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
        "memory": stats.memory_bytes,
        "recv_oct": stats.received_bytes,
        "recv_cnt": stats.received_count,
        "send_oct": stats.sent_bytes,
        "send_cnt": stats.sent_count,
        "send_pend": stats.unsent_bytes,
        **_protection(stats),
        "client_properties": plain(stats.client_properties),
    }
    name = stats.client_properties.get("connection_name")
    if isinstance(name, str):
        found["user_provided_name"] = name
    return found


def _protection(stats: ConnectionStats) -> Row:
    """Return the TLS fields of a connection by RabbitMQ's names; `ssl_cipher` is the suite."""
    return {
        "ssl": bool(stats.tls_version),
        "ssl_protocol": stats.tls_version.lower(),
        "ssl_key_exchange": "",
        "ssl_cipher": stats.tls_cipher,
        "ssl_hash": "",
        "peer_cert_subject": stats.certificate_name,
        "peer_cert_issuer": "",
        "peer_cert_validity": "",
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/connections", connections, LOOKING, rows=True, heavy=True),
    ApiRoute(
        "GET", "/api/connections/username/{user}", connections, LOOKING, rows=True, heavy=True
    ),
    ApiRoute("DELETE", "/api/connections/username/{user}", close_all, MANAGEMENT),
    ApiRoute("GET", "/api/vhosts/{vhost}/connections", connections, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/connections/{connection}", connection, LOOKING),
    ApiRoute("DELETE", "/api/connections/{connection}", close, MANAGEMENT),
)
