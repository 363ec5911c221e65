"""`/api/streams/{vhost}/{name}/consumers`: the named consumers of a stream.

Over TCP the user needs the permission to *read* the stream.  Only the owner of a name and
administrators can move, forget or transfer it; a new name belongs to the user who stores it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web

from leveret.broker.stats.streams import NamedReaderStats, named_reader_rows
from leveret.broker.stream.offsets import GIVE_NAME
from leveret.broker.stream.stream import Stream
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import NUMBER, ApiRoute
from leveret.management.bodies import object_of
from leveret.management.gate import asking_owner, may_change
from leveret.management.rights import USER
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.shared import OPERATOR, Row, json_response
from leveret.management.routes.streams.streams import found_stream
from leveret.management.routes.users.owners import (
    OFFERS,
    TAKES,
    answer,
    judge,
    owner_row,
    wanted_owner,
)

#: Larger than any offset; a JSON number may have any size.
_OFFSET_MAX: Final = 1 << 60


async def consumers(request: web.Request) -> web.StreamResponse:
    """Return the named consumers with their offsets."""
    rows = named_reader_rows(found_stream(request))
    return await stream_rows(request, rows, lambda stats: _row(request, stats))


async def consumer(request: web.Request) -> web.Response:
    """Return one named consumer."""
    stream, name = found_stream(request), request.match_info["consumer"]
    if name not in stream.offsets.stored and name not in stream.offsets.groups:
        raise NotFound(f"no consumer named '{name}' in stream '{stream.name}'")
    return json_response(_row(request, NamedReaderStats(stream, name)))


async def move(request: web.Request) -> web.Response:
    """Set the stored offset of a named consumer, from which it will begin: `{"offset": …}`.

    The offset is a number (a negative one counts from the end), `first`, `last` or `next`.
    """
    wanted = (await object_of(request)).get("offset")
    is_number = isinstance(wanted, int) and not isinstance(wanted, bool)
    if not is_number and wanted not in ("first", "last", "next"):
        raise PreconditionFailed("the field 'offset' must be a number, 'first', 'last' or 'next'")
    if isinstance(wanted, int) and abs(wanted) > _OFFSET_MAX:
        raise PreconditionFailed(f"the field 'offset' is too large: {wanted}")
    stream, name = found_stream(request), request.match_info["consumer"]
    status = HTTPStatus.NO_CONTENT if name in stream.offsets.stored else HTTPStatus.CREATED
    async with request.app[OPERATOR].changing():
        _check_change(request, stream, name)
        offset = stream.start_offset(wanted, f"stream '{stream.name}'")
        stream.offsets.set(name, offset, asking_owner(request))
    return web.Response(status=status)


async def forget(request: web.Request) -> web.Response:
    """Forget a named consumer."""
    stream = found_stream(request)
    name = request.match_info["consumer"]
    async with request.app[OPERATOR].changing():
        _check_change(request, stream, name)
        stream.offsets.forget(name)
    return web.Response(status=204)


async def give(request: web.Request) -> web.Response:
    """Transfer a name to another user and cancel the consumers of others, or offer the name."""
    stream, name = found_stream(request), request.match_info["consumer"]
    offsets = stream.offsets
    async with request.app[OPERATOR].changing():
        if name not in offsets.owners:
            raise NotFound(f"no consumer named '{name}' in stream '{stream.name}'")
        owner, offered = offsets.owners[name], offsets.offered.get(name)
        outcome = judge(request, owner, offered, offsets.label(name), GIVE_NAME)
        to = wanted_owner(request)
        if outcome == OFFERS:
            offsets.offered[name] = to
        else:
            if outcome == TAKES:
                offsets.check_quota(to)
            offsets.give(name, to)
    return answer(outcome)


def _check_change(request: web.Request, stream: Stream, name: str) -> None:
    """Check that the caller may move or forget a name.  Raises: AccessRefused (403 in HTTP)."""
    offsets = stream.offsets
    if name in offsets.owners:
        may_change(request, offsets.owners[name], offsets.label(name), GIVE_NAME)


def _row(request: web.Request, stats: NamedReaderStats) -> Row:
    """Return a named consumer; `lag` is the number of messages that it has not processed."""
    active = stats.active
    return {
        "name": stats.name,
        **owner_row(request, stats.owner),
        "offset": stats.offset,
        "lag": stats.lag,
        "consumers": stats.consumer_count,
        "messages_unacknowledged": stats.unacked_count,
        "active": None if active is None else {"connection": active[0], "consumer_tag": active[1]},
    }


ROUTES: Final = (
    ApiRoute(
        "GET", "/api/streams/{vhost}/{name}/consumers", consumers, USER, rows=True, heavy=True
    ),
    ApiRoute("GET", "/api/streams/{vhost}/{name}/consumers/{consumer}", consumer, USER),
    ApiRoute(
        "PUT",
        "/api/streams/{vhost}/{name}/consumers/{consumer}",
        move,
        USER,
        body={"offset": {"oneOf": [NUMBER, {"enum": ["first", "last", "next"]}]}},
        required=("offset",),
    ),
    ApiRoute("DELETE", "/api/streams/{vhost}/{name}/consumers/{consumer}", forget, USER),
    ApiRoute("PUT", "/api/streams/{vhost}/{name}/consumers/{consumer}/owner/{user}", give, USER),
)
