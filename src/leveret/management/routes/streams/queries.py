"""`GET /api/streams/{vhost}/{name}/queries`: the Spark queries that read a stream.

Over TCP the user needs the permission to *read* the stream.  A query reports itself in parameters
of its other requests (`streams.note_query`), or in arguments of its consumers
(`StreamQueries.note_consumer`).
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stream.stream import Stream
from leveret.management.api_route import ApiRoute
from leveret.management.metrics.stream_queries import StreamQuery, bytes_behind
from leveret.management.rights import USER
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.shared import CLOCK, OPERATOR, Row
from leveret.management.routes.streams.streams import found_stream
from leveret.management.routes.users.owners import owner_row


async def queries(request: web.Request) -> web.StreamResponse:
    """Return the Spark queries that read the stream, with their positions."""
    stream = found_stream(request)
    found = request.app[OPERATOR].queries.of(int(stream.queue_id), request.app[CLOCK])
    return await stream_rows(request, found, lambda one: _row(request, stream, one))


def _row(request: web.Request, stream: Stream, one: StreamQuery) -> Row:
    """Return a query; `lag` is the number of messages after its last committed batch."""
    lag = None if one.position is None else int(stream.lag(one.position))
    return {
        "query_id": one.query_id,
        "name": one.name,
        **owner_row(request, one.owner),
        "position": one.position,
        "lag": lag,
        "bytes_behind": None if lag is None else bytes_behind(stream, lag),
        "heard": one.heard_at_ms,
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/streams/{vhost}/{name}/queries", queries, USER, rows=True, heavy=True),
)
