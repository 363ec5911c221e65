"""What can be done with a queue over HTTP: delete, purge, browse, and rewind what was acked."""

from __future__ import annotations

import base64
from typing import Final

from aiohttp import web

from leveret.broker.backlog.window import Returned
from leveret.broker.classic.browse import browse, browse_filter
from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.queue.queue import Queue
from leveret.errors import PreconditionFailed
from leveret.management.bodies import number_of, object_of
from leveret.management.fields import plain
from leveret.management.gate import (
    asking_owner,
    is_administrator,
    may_configure,
    may_read,
)
from leveret.management.routes.shared import OPERATOR, Row, found_vhost, json_response, name_of
from leveret.wire.properties import decode_properties

#: Messages in one answer, and the bytes of their bodies.
MESSAGES_MAX: Final = 1000
BODY_BYTES_MAX: Final = 4 * 1024 * 1024


def _queue(request: web.Request) -> Queue:
    """Return the queue that the path names.

    Raises: NotFound (404); ResourceLocked (400) for one that is a connection's alone; for who is no
    administrator also AccessRefused (401) for one that is another user's.
    """
    queue = found_vhost(request).queues.existing(name_of(request, "name"), None)
    if not is_administrator(request):
        queue.check_user(asking_owner(request))
    return queue


def _waiting(request: web.Request) -> WaitingQueue:
    queue = _queue(request)
    if not isinstance(queue, WaitingQueue):
        raise PreconditionFailed("a stream is read by its offsets")
    return queue


async def delete(request: web.Request) -> web.Response:
    """Delete a queue; `?if-empty=true` and `?if-unused=true` make it depend."""
    may_configure(request, name_of(request, "name"))
    queue = _queue(request)
    unused, empty = (request.query.get(name) == "true" for name in ("if-unused", "if-empty"))
    async with request.app[OPERATOR].changing():
        found_vhost(request).queues.delete(None, queue.name, unused, empty)
    return web.Response(status=204)


async def purge(request: web.Request) -> web.Response:
    """Drop the messages that wait in a queue; unacked ones stay."""
    may_read(request, name_of(request, "name"))
    queue = _queue(request)
    async with request.app[OPERATOR].changing():
        queue.purge()
    return web.Response(status=204)


async def rewind(request: web.Request) -> web.Response:
    """Put acked messages back that were published at `timestamp` (ms) or later."""
    may_read(request, name_of(request, "name"))
    may_configure(request, name_of(request, "name"))
    timestamp_ms = number_of(await object_of(request), "timestamp")
    queue = _waiting(request)
    if not isinstance(queue, ClassicQueue) or queue.retained is None:
        raise PreconditionFailed(f"queue '{queue.name}' retains no acked messages")
    operator = request.app[OPERATOR]
    operator.begin()
    rewinding = queue.rewind(timestamp_ms)
    if rewinding is None:
        return json_response({"messages": 0})
    await operator.ended(rewinding)
    return json_response({"messages": int(rewinding.count)})


async def read(request: web.Request) -> web.Response:
    """Return waiting messages without taking them.

    The body may hold what the argument `x-browse` may (`position`, `routing-key`, `headers`),
    `count`, and `after` from the answer before this one; the last page has `"after": null`.
    `truncate` cuts bodies, as in `get`.

    Raises: PreconditionFailed (406) for a staging queue, which nobody consumes from either.
    """
    may_read(request, name_of(request, "name"))
    body = await object_of(request)
    count = number_of(body, "count", 100)
    after = number_of(body, "after", -1)
    truncate = number_of(body, "truncate", -1)
    if not 0 < count <= MESSAGES_MAX:
        raise PreconditionFailed(f"the field 'count' must be 1 to {MESSAGES_MAX}")
    wanted = {name: body[name] for name in ("position", "routing-key", "headers") if name in body}
    queue = _waiting(request)
    if queue.hidden:
        raise PreconditionFailed(
            f"staging queue '{queue.name}' is not browsed: list_sinks shows what is staged"
        )
    begin = None if after < 0 else after
    page = browse(queue, browse_filter(wanted, f"queue '{queue.name}'"), begin, count)
    items: list[Returned] = []
    size = 0
    last = page.after
    for item in page.items:
        size += _shown_bytes(item, truncate)
        if items and size > BODY_BYTES_MAX:
            last = items[-1].sequence
            break
        items.append(item)
    rows = [_row(item, truncate) for item in items]
    return json_response({"items": rows, "after": None if last is None else int(last)})


def _shown_bytes(item: Returned, truncate: int) -> int:
    """Return how much of a message's body is shown."""
    size = len(item.message.body)
    return size if truncate < 0 else min(size, truncate)


def _row(item: Returned, truncate: int) -> Row:
    """Return a message as RabbitMQ's `get` shows it, with its sequence."""
    message = item.message
    properties = decode_properties(message.properties)
    names = [name for name in properties.FIELDS if getattr(properties, name) is not None]
    shown = message.body if truncate < 0 else message.body[:truncate]
    try:
        payload, encoding = shown.decode(), "string"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(shown).decode(), "base64"
    return {
        "sequence": int(item.sequence),
        "exchange": message.address.exchange.decode("utf-8", "replace"),
        "routing_key": message.address.routing_key.decode("utf-8", "replace"),
        "redelivered": item.count > 0,
        "timestamp": int(message.timestamp_ms),
        "properties": {name: plain(getattr(properties, name)) for name in names},
        "payload": payload,
        "payload_bytes": len(message.body),
        "payload_encoding": encoding,
    }


ROUTES: Final = (
    web.delete("/api/queues/{vhost}/{name}", delete),
    web.delete("/api/queues/{vhost}/{name}/contents", purge),
    web.post("/api/queues/{vhost}/{name}/rewind", rewind),
    web.post("/api/queues/{vhost}/{name}/browse", read),
)
