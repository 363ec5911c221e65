"""Vhosts and their limits: `/api/vhosts` and `/api/vhost-limits`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.vhost.vhost import Vhost
from leveret.management.api_route import FLAG, LIMIT, TAGS, TEXT, ApiRoute
from leveret.management.bodies import number_of, object_of
from leveret.management.gate import access_of
from leveret.management.requests.slices import next_slice
from leveret.management.rights import ADMINISTRATION, LOOKING
from leveret.management.routes.lists import SLICE_ROWS, as_it_is, stream_rows
from leveret.management.routes.node.identity import check_node, node_name
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, json_response, seen
from leveret.names import check_new

#: Queues counted per slice (about a millisecond).
COUNTED_AT_ONCE: Final = 2_000


async def vhosts(request: web.Request) -> web.StreamResponse:
    """Return all vhosts; messages are counted if their columns are requested."""
    query = request.query
    counts = (
        "columns" not in query
        or "messages" in query["columns"]
        or "messages" in query.get("sort", "")
    )
    rows: list[Row] = []
    for number, vhost in enumerate(seen(request), 1):
        rows.append(await _row(vhost, counts))
        if number % SLICE_ROWS == 0:
            await next_slice()
    return await stream_rows(request, rows, as_it_is)


async def vhost(request: web.Request) -> web.Response:
    """Return one vhost."""
    return json_response(await _row(found_vhost(request)))


async def put(request: web.Request) -> web.Response:
    """Create a vhost, or change the metadata of an existing one.

    The user who creates it gets all permissions in it.
    """
    body = await object_of(request)
    if isinstance(tags := body.get("tags"), str):
        body["tags"] = [tag.strip() for tag in tags.split(",") if tag.strip()]
    broker = request.app[BROKER]
    name = request.match_info["vhost"]
    new = name not in broker.vhosts
    if new:
        check_new(name, "vhost")
    access = access_of(request)
    async with request.app[OPERATOR].changing():
        broker.put_vhost(name, body, {}, "" if access is None else access.user)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete a vhost with everything in it; answer when the deletion is complete."""
    operator = request.app[OPERATOR]
    operator.begin()
    await operator.ended(request.app[BROKER].delete_vhost(request.match_info["vhost"]))
    return web.Response(status=204)


async def start(request: web.Request) -> web.Response:
    """Do nothing, because existing vhosts always run.  Raises: NotFound (404)."""
    check_node(request)
    found_vhost(request)
    return web.Response(status=204)


async def protect(request: web.Request) -> web.Response:
    """Protect a vhost from deletion (POST), or remove the protection (DELETE)."""
    vhost = found_vhost(request)
    on = request.method == "POST"
    async with request.app[OPERATOR].changing():
        request.app[BROKER].put_vhost(vhost.name, {"protected_from_deletion": on}, {})
    return web.Response(status=204)


async def limits(request: web.Request) -> web.StreamResponse:
    """Return the limits of all vhosts or of one."""
    rows: list[Row] = [
        {"vhost": vhost.name, "value": dict(vhost.limits.by_name)}
        for vhost in seen(request)
        if vhost.limits.by_name
    ]
    return await stream_rows(request, rows, as_it_is)


async def put_limits(request: web.Request) -> web.Response:
    """Set the limits in the body for a vhost, all or none; other limits remain unchanged."""
    wanted = await object_of(request)
    async with request.app[OPERATOR].changing():
        found_vhost(request).limits.add(wanted)
    return web.Response(status=204)


async def delete_limits(request: web.Request) -> web.Response:
    """Delete all limits of a vhost."""
    async with request.app[OPERATOR].changing():
        found_vhost(request).limits.set({})
    return web.Response(status=204)


async def put_limit(request: web.Request) -> web.Response:
    """Set one limit of a vhost."""
    value = number_of(await object_of(request), "value")
    async with request.app[OPERATOR].changing():
        found_vhost(request).limits.add({request.match_info["name"]: value})
    return web.Response(status=204)


async def delete_limit(request: web.Request) -> web.Response:
    """Delete one limit of a vhost."""
    async with request.app[OPERATOR].changing():
        found_vhost(request).limits.clear(request.match_info["name"])
    return web.Response(status=204)


async def _row(vhost: Vhost, counts: bool = True) -> Row:
    """Return a vhost as in RabbitMQ's API; with `counts`, its messages are counted in slices."""
    ready = unacked = 0
    for number, queue in enumerate(list(vhost.queues.by_name.values()) if counts else (), 1):
        if not queue.hidden and not queue.deleted:
            ready += int(queue.ready_count())
            unacked += int(queue.unacked_count)
        if number % COUNTED_AT_ONCE == 0:
            await next_slice()
    metadata = vhost.metadata.fields()
    return {
        "name": vhost.name,
        "protected_from_deletion": vhost.metadata.protected,
        **metadata,
        "metadata": metadata,
        "tracing": False,
        "cluster_state": {node_name(): "running"},
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "definition_bytes": int(vhost.account.bytes),
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/vhosts", vhosts, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/vhosts/{vhost}", vhost, LOOKING),
    ApiRoute(
        "PUT",
        "/api/vhosts/{vhost}",
        put,
        ADMINISTRATION,
        body={
            "description": TEXT,
            "tags": TAGS,
            "default_queue_type": TEXT,
            "strict_keys": FLAG,
            "protected_from_deletion": FLAG,
        },
    ),
    ApiRoute("DELETE", "/api/vhosts/{vhost}", delete, ADMINISTRATION),
    ApiRoute("POST", "/api/vhosts/{vhost}/start/{name}", start, ADMINISTRATION),
    ApiRoute("POST", "/api/vhosts/{vhost}/deletion/protection", protect, ADMINISTRATION),
    ApiRoute("DELETE", "/api/vhosts/{vhost}/deletion/protection", protect, ADMINISTRATION),
    ApiRoute("GET", "/api/vhost-limits", limits, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/vhost-limits/{vhost}", limits, LOOKING, rows=True, heavy=True),
    ApiRoute("PUT", "/api/vhost-limits/{vhost}", put_limits, ADMINISTRATION),
    ApiRoute("DELETE", "/api/vhost-limits/{vhost}", delete_limits, ADMINISTRATION),
    ApiRoute(
        "PUT",
        "/api/vhost-limits/{vhost}/{name}",
        put_limit,
        ADMINISTRATION,
        body=LIMIT,
        required=("value",),
    ),
    ApiRoute("DELETE", "/api/vhost-limits/{vhost}/{name}", delete_limit, ADMINISTRATION),
)
