"""Declares queues, lists their bindings, and accepts RabbitMQ's `actions` over HTTP.

Queues are declared over an AMQP channel as the user of the request (`management.direct`).
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats.bindings import bindings_of_queue
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import FLAG, TABLE, ApiRoute
from leveret.management.bodies import flag_of, object_of, table_or_none
from leveret.management.gate import may_configure
from leveret.management.rights import LOOKING, MANAGEMENT
from leveret.management.routes.exchanges.bindings import row as binding_row
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.shared import BROKER, as_user, found_vhost, name_of
from leveret.wire.methods import QueueDeclare, QueueDeclareOk

#: RabbitMQ's actions on mirrored queues, which have no effect here.
_ACTIONS: Final = ("sync", "cancel_sync")


async def put(request: web.Request) -> web.Response:
    """Declare a queue with `durable`, `auto_delete` and `arguments`, with AMQP's defaults."""
    body = await object_of(request)
    vhost = found_vhost(request)
    name = name_of(request, "name")
    declare = QueueDeclare(
        name,
        durable=flag_of(body, "durable"),
        auto_delete=flag_of(body, "auto_delete"),
        arguments=table_or_none(body, "arguments"),
    )
    new = name not in vhost.queues.by_name
    async with as_user(request, vhost.name) as channel:
        await channel.request(declare, QueueDeclareOk)
    return web.Response(status=201 if new else 204)


async def bindings(request: web.Request) -> web.StreamResponse:
    """Return the bindings of a queue, including its binding to the default exchange."""
    vhost = found_vhost(request)
    name = name_of(request, "name")
    if name not in vhost.queues.by_name:
        raise NotFound(f"no queue '{name}'")
    rows = bindings_of_queue(request.app[BROKER], vhost.name, name)
    return await stream_rows(request, rows, binding_row)


async def act(request: web.Request) -> web.Response:
    """Accept RabbitMQ's actions on mirrored queues, without effect.

    Raises: PreconditionFailed (400 in HTTP) for an unknown action.
    """
    body = await object_of(request)
    vhost, name = found_vhost(request), name_of(request, "name")
    may_configure(request, name)
    vhost.queues.existing(name, None)
    if body.get("action") not in _ACTIONS:
        raise PreconditionFailed(f"the field 'action' must be one of {', '.join(_ACTIONS)}")
    return web.Response(status=204)


ROUTES: Final = (
    ApiRoute(
        "PUT",
        "/api/queues/{vhost}/{name}",
        put,
        MANAGEMENT,
        body={"durable": FLAG, "auto_delete": FLAG, "arguments": TABLE},
    ),
    ApiRoute(
        "GET", "/api/queues/{vhost}/{name}/bindings", bindings, LOOKING, rows=True, heavy=True
    ),
    ApiRoute(
        "POST",
        "/api/queues/{vhost}/{name}/actions",
        act,
        MANAGEMENT,
        body={"action": {"enum": ["sync", "cancel_sync"]}},
        required=("action",),
    ),
)
