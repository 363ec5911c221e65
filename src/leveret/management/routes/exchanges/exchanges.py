"""`/api/exchanges`: lists, declares and deletes exchanges.

The default exchange has the empty name; in paths it is `amq.default`, as in RabbitMQ.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web

from leveret.broker.stats.bindings import bindings_from, bindings_to_exchange
from leveret.broker.stats.stats import ExchangeStats, exchange_rows
from leveret.errors import PreconditionFailed
from leveret.management.api_route import FLAG, TABLE, TEXT, ApiRoute
from leveret.management.bodies import flag_of, object_of, table_or_none, text_of
from leveret.management.fields import plain
from leveret.management.gate import may_configure
from leveret.management.rights import LOOKING, MANAGEMENT
from leveret.management.routes.exchanges.bindings import row as binding_row
from leveret.management.routes.lists import listed, stream_rows
from leveret.management.routes.shared import (
    BROKER,
    Row,
    as_user,
    exchange_of,
    found_vhost,
    row_response,
)
from leveret.wire.methods import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
)


async def exchanges(request: web.Request) -> web.StreamResponse:
    """Return all exchanges, or those of a vhost."""
    rows = listed(request, partial(exchange_rows, request.app[BROKER]))
    return await stream_rows(request, rows, row)


async def exchange(request: web.Request) -> web.Response:
    """Return one exchange."""
    vhost = found_vhost(request)
    found = vhost.exchanges.existing(exchange_of(request, "name"))
    shown = row(ExchangeStats(vhost.name, found))
    # RabbitMQ includes rates by channel and queue here if it is configured to count them.
    return row_response(
        request,
        {**shown, "alternate_exchange": found.alternate, "incoming": [], "outgoing": []},
    )


async def put(request: web.Request) -> web.Response:
    """Declare an exchange with `type`, `durable`, `auto_delete`, `internal` and `arguments`."""
    body = await object_of(request)
    vhost = found_vhost(request)
    name = exchange_of(request, "name")
    declare = ExchangeDeclare(
        name,
        text_of(body, "type", "direct"),
        durable=flag_of(body, "durable"),
        auto_delete=flag_of(body, "auto_delete"),
        internal=flag_of(body, "internal"),
        arguments=table_or_none(body, "arguments"),
    )
    new = name not in vhost.exchanges.by_name
    async with as_user(request, vhost.name) as channel:
        await channel.request(declare, ExchangeDeclareOk)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete an exchange; `?if-unused=true` deletes it only if it has no bindings."""
    vhost = found_vhost(request)
    name = exchange_of(request, "name")
    may_configure(request, name, "exchange")
    vhost.exchanges.existing(name)
    unused = request.query.get("if-unused") == "true"
    async with as_user(request, vhost.name) as channel:
        await channel.request(ExchangeDelete(name, unused), ExchangeDeleteOk)
    return web.Response(status=204)


async def bindings(request: web.Request) -> web.StreamResponse:
    """Return the bindings with an exchange as their source or destination.

    Raises: PreconditionFailed (400 in HTTP) if the path ends in neither word.
    """
    vhost = found_vhost(request)
    name = vhost.exchanges.existing(exchange_of(request, "name")).name
    end = request.match_info["end"]
    if end not in ("source", "destination"):
        raise PreconditionFailed("the path must end in source or destination")
    find = bindings_from if end == "source" else bindings_to_exchange
    rows = find(request.app[BROKER], vhost.name, name)
    return await stream_rows(request, rows, binding_row)


def row(stats: ExchangeStats) -> Row:
    """Return an exchange as in RabbitMQ's API."""
    return {
        "name": stats.name,
        "vhost": stats.vhost,
        "type": stats.kind,
        "durable": stats.durable,
        "auto_delete": stats.auto_delete,
        "internal": stats.internal,
        "arguments": plain(stats.arguments),
        "policy": stats.policy,
        "message_stats": {"publish_in": stats.published_in},
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/exchanges", exchanges, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/exchanges/{vhost}", exchanges, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/exchanges/{vhost}/{name}", exchange, LOOKING),
    ApiRoute(
        "PUT",
        "/api/exchanges/{vhost}/{name}",
        put,
        MANAGEMENT,
        body={
            "type": TEXT,
            "durable": FLAG,
            "auto_delete": FLAG,
            "internal": FLAG,
            "arguments": TABLE,
        },
    ),
    ApiRoute("DELETE", "/api/exchanges/{vhost}/{name}", delete, MANAGEMENT),
    ApiRoute(
        "GET",
        "/api/exchanges/{vhost}/{name}/bindings/{end}",
        bindings,
        LOOKING,
        rows=True,
        heavy=True,
    ),
)
