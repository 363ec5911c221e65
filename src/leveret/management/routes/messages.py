"""The messages of a queue: reading them without taking them, and rewinding to retained ones.

A browse answers with a page of what waits; `after` of one page asks for the next.  A page may hold
fewer messages than were asked for, even none, and not be the last: each look is bounded.
"""

from __future__ import annotations

import base64
from typing import Final

from aiohttp import web

from leveret.broker.browse import BrowseFilter, browse
from leveret.broker.classic import ClassicQueue
from leveret.broker.source import Returned
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.bodies import number_of, object_of, table_of, text_of
from leveret.management.fields import plain
from leveret.management.routes.shared import OPERATOR, Row, found_vhost, json_response
from leveret.wire.properties import decode_properties

#: Messages on one page, and of each body what is shown unless more is asked for.
_PAGE_MAX: Final = 1000
_PAGE: Final = 100
_PAYLOAD_BYTES: Final = 50_000

#: What all bodies on one page may show together; a page ends after the message that exceeds it.
_PAGE_BYTES: Final = 8 * 1024 * 1024


def _found_queue(request: web.Request) -> ClassicQueue:
    """Return the queue that the path names; a stream is read by consumers.

    Raises: NotFound (404), PreconditionFailed (400 in HTTP).
    """
    queue = found_vhost(request).queues.get(request.match_info["name"])
    if queue is None:
        raise NotFound
    if not isinstance(queue, ClassicQueue):
        raise PreconditionFailed(f"'{queue.name}' is no queue but a {queue.kind}")
    return queue


async def browse_queue(request: web.Request) -> web.Response:
    """Return a page of what waits in a queue; nothing about it changes."""
    body = await object_of(request)
    wanted = BrowseFilter(
        number_of(body, "position", 0),
        text_of(body, "routing_key") if "routing_key" in body else None,
        table_of(body, "headers") if "headers" in body else None,
    )
    limit = min(max(number_of(body, "count", _PAGE), 1), _PAGE_MAX)
    truncate = max(number_of(body, "truncate", _PAYLOAD_BYTES), 0)
    page = browse(_found_queue(request), wanted, number_of(body, "after", -1), limit)
    after = page.after
    rows: list[Row] = []
    size = 0
    for item in page.items:
        rows.append(_row(item, truncate))
        size += min(len(item.message.body), truncate)
        if size > _PAGE_BYTES:
            after = item.sequence
            break
    return json_response({"messages": rows, "after": after if after >= 0 else None})


async def rewind_queue(request: web.Request) -> web.Response:
    """Put back what a queue retains and was published at `timestamp_ms` or later."""
    timestamp_ms = number_of(await object_of(request), "timestamp_ms")
    async with request.app[OPERATOR].changing():
        count = _found_queue(request).rewind(timestamp_ms)
    return json_response({"messages": count})


def _row(item: Returned, truncate: int) -> Row:
    """Return a message as RabbitMQ's `get` shows it, with its number and time."""
    message = item.message
    properties = decode_properties(message.properties)
    named = {name: getattr(properties, name) for name in properties.FIELDS}
    shown = message.body[:truncate]
    try:
        payload, encoding = shown.decode(), "string"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(shown).decode(), "base64"
    return {
        "number": item.sequence,
        "timestamp_ms": message.timestamp_ms,
        "exchange": message.address.exchange.decode("utf-8", "replace"),
        "routing_key": message.address.routing_key.decode("utf-8", "replace"),
        "redelivered": item.count > 0,
        "properties": {name: plain(value) for name, value in named.items() if value is not None},
        "payload": payload,
        "payload_bytes": len(message.body),
        "payload_encoding": encoding,
    }


ROUTES: Final = (
    web.post("/api/queues/{vhost}/{name}/browse", browse_queue),
    web.post("/api/queues/{vhost}/{name}/rewind", rewind_queue),
)
