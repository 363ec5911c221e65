"""`/api/super-streams/{vhost}` and `…/{name}`: super streams.

Over TCP the user needs the same permissions as in AMQP: to *read* the super stream, or to declare
and delete its partitions.
"""

from __future__ import annotations

from http import HTTPStatus
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.stats.streams import (
    SuperStreamStats,
    super_stream_rows,
    super_stream_stats,
)
from leveret.broker.super_streams.declare import declare_super_stream
from leveret.broker.super_streams.super_stream import (
    PARTITIONS,
    delete_super_stream,
    super_stream_names,
)
from leveret.errors import NotFound
from leveret.management.api_route import NUMBER, TABLE, ApiRoute
from leveret.management.bodies import number_of, object_of, table_of
from leveret.management.fields import plain
from leveret.management.gate import ACCESS, can_read, may_read
from leveret.management.operator import in_slices
from leveret.management.rights import USER
from leveret.management.routes.lists import permitted, stream_slices
from leveret.management.routes.shared import (
    BROKER,
    OPERATOR,
    Row,
    found_vhost,
    json_response,
    name_of,
)
from leveret.names import Name, clean_argument

#: Super streams per slice.  Each has up to 256 partitions, and older ones may have more.
_AT_ONCE: Final = 2


async def super_streams(request: web.Request) -> web.StreamResponse:
    """Return the super streams of a vhost that the user may read."""
    vhost = found_vhost(request)
    names = await permitted(
        vhost.core, super_stream_names(vhost), lambda name: can_read(request, Name(name))
    )
    rows = super_stream_rows(request.app[BROKER], vhost.name, names)

    async def take(_count: int) -> list[SuperStreamStats]:
        return list(islice(rows, _AT_ONCE))

    return await stream_slices(request, take, _row)


async def super_stream(request: web.Request) -> web.Response:
    """Return one super stream."""
    name = name_of(request, "name")
    may_read(request, name)
    found = super_stream_stats(found_vhost(request), name)
    if found is None:
        raise NotFound(f"no super stream '{name}' in vhost '{request.match_info['vhost']}'")
    return json_response(_row(found))


async def declare(request: web.Request) -> web.Response:
    """Declare a super stream: `{"partitions": 3, "arguments": {…}}`.

    Each partition gets the arguments.
    """
    body = await object_of(request)
    partitions = number_of(body, "partitions")
    arguments = table_of(body, "arguments") if "arguments" in body else {}
    vhost, name = found_vhost(request), name_of(request, "name")
    clean_argument(arguments, "x-dead-letter-exchange")
    wanted = {**arguments, PARTITIONS: partitions}
    access = request.get(ACCESS)
    owner = None if access is None else access.owner
    async with request.app[OPERATOR].changing():
        declaring = declare_super_stream(vhost, name, wanted, access, owner)
        is_new = await in_slices(vhost.core, declaring)
    return web.Response(status=HTTPStatus.CREATED if is_new else HTTPStatus.NO_CONTENT)


async def delete(request: web.Request) -> web.Response:
    """Delete a super stream with its partitions.

    `?if-empty=true` and `?if-unused=true` make it conditional.
    """
    vhost, name = found_vhost(request), name_of(request, "name")
    unused, empty = (request.query.get(flag) == "true" for flag in ("if-unused", "if-empty"))
    async with request.app[OPERATOR].changing():
        deleting = delete_super_stream(vhost, name, unused, empty, request.get(ACCESS))
        await in_slices(vhost.core, deleting)
    return web.Response(status=204)


def _row(stats: SuperStreamStats) -> Row:
    """Return a super stream; `partitions` are the names of its partitions."""
    return {
        "name": stats.name,
        "vhost": stats.vhost,
        "partitions": stats.partitions,
        "arguments": plain(stats.arguments),
        "messages": stats.messages,
        "message_bytes": stats.bytes,
        "consumers": stats.consumer_count,
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/super-streams/{vhost}", super_streams, USER, rows=True, heavy=True),
    ApiRoute("GET", "/api/super-streams/{vhost}/{name}", super_stream, USER),
    ApiRoute(
        "PUT",
        "/api/super-streams/{vhost}/{name}",
        declare,
        USER,
        body={"partitions": NUMBER, "arguments": TABLE},
        required=("partitions",),
        heavy=True,
    ),
    ApiRoute("DELETE", "/api/super-streams/{vhost}/{name}", delete, USER, heavy=True),
)
