"""`GET /api/streams/{vhost}`, `…/{name}` and `…/{name}/offset`: streams and their offsets.

Over TCP the user needs the permission to *read* a stream, as a consumer does.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.stats.streams import StreamStats, stream_rows
from leveret.broker.stream.stream import Stream
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import STREAM_QUERY_NAME_CHARACTERS_MAX
from leveret.management.api_route import ApiRoute
from leveret.management.gate import asking_owner, can_read, may_read
from leveret.management.metrics.stream_queries import POSITION_MAX, StreamQuery, is_id
from leveret.management.requests.slices import next_slice
from leveret.management.rights import USER
from leveret.management.routes.lists import permitted, stream_slices
from leveret.management.routes.shared import (
    CLOCK,
    OPERATOR,
    Row,
    found_vhost,
    json_response,
    name_of,
    number_of_query,
)

#: The latest timestamp, in ms; it must fit into 64 bits.
_TIMESTAMP_MAX: Final = 2**60


async def streams(request: web.Request) -> web.StreamResponse:
    """Return the streams of a vhost that the user may read."""
    vhost = found_vhost(request)
    rows = stream_rows(vhost)

    async def take(count: int) -> list[StreamStats]:
        while taken := list(islice(rows, count)):
            if seen := await permitted(
                vhost.core, taken, lambda stats: can_read(request, stats.name)
            ):
                return seen
            await next_slice()
        return []

    return await stream_slices(request, take, partial(row, vhost.name))


async def stream(request: web.Request) -> web.Response:
    """Return one stream."""
    found = found_stream(request)
    note_query(request, found)
    return json_response(row(request.match_info["vhost"], StreamStats(found)))


async def offset(request: web.Request) -> web.Response:
    """Return the offset of the first message received at or after a time, or the end.

    With `before`, return the offset after the last message received before a time, or the first
    offset if no message was received before it.
    """
    found = found_stream(request)
    if "before" in request.query:
        before_ms = number_of_query(request, "before", None, _TIMESTAMP_MAX)
        return json_response({"offset": int(found.end_at(before_ms))})
    timestamp_ms = number_of_query(request, "timestamp", None, _TIMESTAMP_MAX)
    return json_response({"offset": int(found.offset_at(timestamp_ms))})


def found_stream(request: web.Request) -> Stream:
    """Return the stream in the path.

    Raises: AccessRefused (403) if the user may not read it; NotFound (404); PreconditionFailed
    (400) for a queue that is not a stream.
    """
    name = name_of(request, "name")
    may_read(request, name)
    vhost = found_vhost(request)
    queue = vhost.queues.by_name.get(name)
    if queue is None:
        raise NotFound(f"no stream '{name}' in vhost '{vhost.name}'")
    if not isinstance(queue, Stream):
        raise PreconditionFailed(f"'{name}' in vhost '{vhost.name}' is not a stream: {queue.kind}")
    return queue


def note_query(request: web.Request, stream: Stream) -> None:
    """Record the Spark query that sent a request for a stream, if it identifies itself.

    The parameters are `run`, and optionally `query_id`, `query_name` and `position`.

    Raises: PreconditionFailed (400 in HTTP).
    """
    run = _id_in(request, "run")
    if run is None:
        return
    vhost, owner = request.match_info["vhost"], asking_owner(request)
    told = StreamQuery(vhost, stream.name, int(stream.queue_id), owner, run)
    told.query_id = _id_in(request, "query_id")
    told.name = request.query.get("query_name", "")[:STREAM_QUERY_NAME_CHARACTERS_MAX] or None
    if "position" in request.query:
        told.position = number_of_query(request, "position", None, POSITION_MAX)
    request.app[OPERATOR].queries.report(told, stream.core, request.app[CLOCK])


def _id_in(request: web.Request, parameter: str) -> str | None:
    """Return an id from the query string, or None.  Raises: PreconditionFailed (400)."""
    text = request.query.get(parameter)
    if text is not None and not is_id(text):
        raise PreconditionFailed(
            f"the query's '{parameter}' must be 1 to 64 letters, digits and hyphens"
        )
    return text


def row(vhost: str, stats: StreamStats) -> Row:
    """Return a stream; its offsets range from `first_offset` to before `next_offset`."""
    return {
        "name": stats.name,
        "vhost": vhost,
        "stream_id": stats.stream_id,
        "first_offset": stats.first_offset,
        "next_offset": stats.next_offset,
        "messages": stats.next_offset - stats.first_offset,
        "bytes": stats.bytes,
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/streams/{vhost}", streams, USER, rows=True, heavy=True),
    ApiRoute("GET", "/api/streams/{vhost}/{name}", stream, USER),
    ApiRoute("GET", "/api/streams/{vhost}/{name}/offset", offset, USER),
)
