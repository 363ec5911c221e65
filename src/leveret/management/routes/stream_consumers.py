"""The named consumers of a stream: `/api/streams/{vhost}/{name}/consumers`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web

from leveret.broker.stream_stats import NamedReaderListing, NamedReaderStats
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.bodies import object_of
from leveret.management.routes.shared import (
    OPERATOR,
    Row,
    json_response,
    stream_rows,
)
from leveret.management.routes.streams import found_stream

#: No stream comes so far; a number of JSON may be of any size.
_OFFSET_MAX: Final = 1 << 60


async def consumers(request: web.Request) -> web.StreamResponse:
    """Return the names with their offsets."""
    listing = NamedReaderListing(found_stream(request))
    return await stream_rows(request, listing.take, _row)


async def consumer(request: web.Request) -> web.Response:
    """Return one name."""
    stream, name = found_stream(request), request.match_info["consumer"]
    if name not in stream.offsets.stored and name not in stream.offsets.groups:
        raise NotFound(f"no consumer named '{name}' in stream '{stream.name}'")
    return json_response(_row(NamedReaderStats(stream, name)))


async def move(request: web.Request) -> web.Response:
    """Let a name begin at another offset the next time: `{"offset": …}`.

    It is a number, a negative one counts from the end, or `first`, `last` or `next`.
    """
    wanted = (await object_of(request)).get("offset")
    is_number = isinstance(wanted, int) and not isinstance(wanted, bool)
    if not is_number and wanted not in ("first", "last", "next"):
        raise PreconditionFailed("the field 'offset' is a number, 'first', 'last' or 'next'")
    if isinstance(wanted, int) and abs(wanted) > _OFFSET_MAX:
        raise PreconditionFailed(f"the field 'offset' is too great: {wanted}")
    stream, name = found_stream(request), request.match_info["consumer"]
    status = HTTPStatus.NO_CONTENT if name in stream.offsets.stored else HTTPStatus.CREATED
    async with request.app[OPERATOR].changing():
        stream.offsets.set(name, stream.start_offset(wanted, f"stream '{stream.name}'"))
    return web.Response(status=status)


async def forget(request: web.Request) -> web.Response:
    """Forget a name."""
    stream = found_stream(request)
    async with request.app[OPERATOR].changing():
        stream.offsets.forget(request.match_info["consumer"])
    return web.Response(status=204)


def _row(stats: NamedReaderStats) -> Row:
    """Return a name; `lag` counts the messages that are not done."""
    active = stats.active
    return {
        "name": stats.name,
        "offset": stats.offset,
        "lag": stats.lag,
        "consumers": stats.consumer_count,
        "messages_unacknowledged": stats.unacked_count,
        "active": None if active is None else {"connection": active[0], "consumer_tag": active[1]},
    }


ROUTES: Final = (
    web.get("/api/streams/{vhost}/{name}/consumers", consumers),
    web.get("/api/streams/{vhost}/{name}/consumers/{consumer}", consumer),
    web.put("/api/streams/{vhost}/{name}/consumers/{consumer}", move),
    web.delete("/api/streams/{vhost}/{name}/consumers/{consumer}", forget),
)
