"""`/api/exchanges/{vhost}/{name}/delayed`: the delayed messages of an exchange."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats.stats import DelayedStats, delayed_rows
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import ApiRoute
from leveret.management.gate import may_configure, may_read
from leveret.management.rights import MANAGEMENT
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.shared import OPERATOR, Row, found_vhost, json_response, name_of

#: The number of digits that always fits into 64 bits.
_ID_DIGITS_MAX: Final = 18


async def delayed(request: web.Request) -> web.StreamResponse:
    """Return the delayed messages of an exchange, which are not due yet."""
    vhost, name = found_vhost(request), name_of(request, "name")
    may_read(request, name, "exchange")
    rows = delayed_rows(vhost.name, vhost.exchanges.existing(name))
    return await stream_rows(request, rows, _row)


async def cancel(request: web.Request) -> web.Response:
    """Drop a delayed message by its id."""
    name, digits = name_of(request, "name"), request.match_info["id"]
    may_configure(request, name, "exchange")
    if not digits.isascii() or not digits.isdigit():
        raise PreconditionFailed(
            "the id of a delayed message is a whole number; list the messages to see their ids"
        )
    # Longer numbers are not ids, and would not fit into the core's integers.
    sequence = int(digits) if len(digits) <= _ID_DIGITS_MAX else -1
    async with request.app[OPERATOR].changing():
        if not found_vhost(request).exchanges.cancel_delayed(name, sequence):
            raise NotFound(f"no delayed message {digits} in exchange '{name}'")
    return web.Response(status=204)


async def purge(request: web.Request) -> web.Response:
    """Drop all delayed messages of an exchange; return their number."""
    name = name_of(request, "name")
    may_configure(request, name, "exchange")
    async with request.app[OPERATOR].changing():
        count = found_vhost(request).exchanges.purge_delayed(name)
    return json_response({"messages": int(count)})


def _row(stats: DelayedStats) -> Row:
    """Return a delayed message; times are ms since 1970."""
    return {
        "id": stats.id,
        "due": stats.due_ms,
        "timestamp": stats.taken_ms,
        "exchange": stats.source,
        "routing_key": stats.routing_key,
        "bytes": stats.bytes,
        "persistent": stats.persistent,
    }


ROUTES: Final = (
    ApiRoute(
        "GET", "/api/exchanges/{vhost}/{name}/delayed", delayed, MANAGEMENT, rows=True, heavy=True
    ),
    ApiRoute("DELETE", "/api/exchanges/{vhost}/{name}/delayed", purge, MANAGEMENT),
    ApiRoute("DELETE", "/api/exchanges/{vhost}/{name}/delayed/{id}", cancel, MANAGEMENT),
)
