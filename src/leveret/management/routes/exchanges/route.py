"""`POST /api/exchanges/{vhost}/{name}/route`: routes a message without publishing it (dry run)."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.vhost.dry_run import dry_run
from leveret.management.api_route import TABLE, TEXT, ApiRoute
from leveret.management.bodies import object_of, table_or_none, text_of
from leveret.management.rights import LOOKING
from leveret.management.routes.exchanges.publish import properties_of
from leveret.management.routes.shared import exchange_of, found_vhost, json_response


async def route(request: web.Request) -> web.Response:
    """Return the queues that a message would be routed to, without publishing it.

    `left` is true if the answer does not contain all routing steps.
    """
    body = await object_of(request)
    routing_key = text_of(body, "routing_key")
    headers = table_or_none(body, "headers")
    properties = properties_of({"headers": headers}) if headers else b""
    vhost = found_vhost(request)
    exchange = vhost.exchanges.existing(exchange_of(request, "name"))
    found = dry_run(vhost, exchange, routing_key, properties)
    ways = [
        {
            "source": way.source,
            "destination": way.destination,
            "destination_type": "queue" if way.to_queue else "exchange",
            "alternate": way.alternate,
        }
        for way in found.ways
    ]
    return json_response(
        {
            "exchanges": found.exchanges,
            "queues": found.queues,
            "bindings": ways,
            "delayed_by": found.delayed_by,
            "chooses": found.chooses,
            "left": found.left,
        }
    )


ROUTES: Final = (
    ApiRoute(
        "POST",
        "/api/exchanges/{vhost}/{name}/route",
        route,
        LOOKING,
        body={"routing_key": TEXT, "headers": TABLE},
        required=("routing_key",),
        heavy=True,
        logged=False,
    ),
)
