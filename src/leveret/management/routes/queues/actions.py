"""Operations on a queue over HTTP: delete, purge, browse, and rewind to acked messages."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.queue.browse import browse, browse_filter
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.errors import PreconditionFailed
from leveret.management.api_route import NUMBER, TABLE, TEXT, ApiRoute
from leveret.management.bodies import number_of, object_of
from leveret.management.gate import (
    asking_owner,
    book,
    is_administrator,
    may_configure,
    may_read,
)
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MANAGEMENT
from leveret.management.routes.queues.payloads import (
    Room,
    Shown,
    answer_messages,
    cut,
)
from leveret.management.routes.shared import (
    OPERATOR,
    Row,
    found_vhost,
    json_response,
    name_of,
)

#: The maximum number of messages in an answer, and the number per slice (some milliseconds).
MESSAGES_MAX: Final = 1000
MESSAGES_AT_ONCE: Final = 50


def _queue(request: web.Request) -> Queue:
    """Return the queue in the path.

    Raises: NotFound (404); ResourceLocked (400) for an exclusive queue of a connection;
    AccessRefused (401) for another user's queue, unless the caller is an administrator.
    """
    queue = found_vhost(request).queues.existing(name_of(request, "name"), None)
    if not is_administrator(request):
        queue.check_user(asking_owner(request))
    return queue


def _waiting(request: web.Request) -> WaitingQueue:
    queue = _queue(request)
    if not isinstance(queue, WaitingQueue):
        raise PreconditionFailed("a stream cannot be browsed or rewound; read it by its offsets")
    return queue


async def delete(request: web.Request) -> web.Response:
    """Delete a queue; `?if-empty=true` and `?if-unused=true` make it conditional."""
    may_configure(request, name_of(request, "name"))
    queue = _queue(request)
    unused, empty = (request.query.get(name) == "true" for name in ("if-unused", "if-empty"))
    async with request.app[OPERATOR].changing():
        found_vhost(request).queues.delete(None, queue.name, unused, empty)
    return web.Response(status=204)


async def purge(request: web.Request) -> web.Response:
    """Drop the ready messages of a queue, but not the unacked ones."""
    may_read(request, name_of(request, "name"))
    queue = _queue(request)
    async with request.app[OPERATOR].changing():
        queue.purge()
    return web.Response(status=204)


async def rewind(request: web.Request) -> web.Response:
    """Requeue acked messages that were published at `timestamp` (ms) or later."""
    may_read(request, name_of(request, "name"))
    may_configure(request, name_of(request, "name"))
    timestamp_ms = number_of(await object_of(request), "timestamp")
    queue = _waiting(request)
    if not isinstance(queue, ClassicQueue) or queue.retained is None:
        raise PreconditionFailed(f"queue '{queue.name}' retains no acked messages")
    operator = request.app[OPERATOR]
    operator.begin()
    rewinding = queue.rewind(timestamp_ms)
    if rewinding is None or rewinding.task is None:
        return json_response({"messages": 0})
    await operator.ended(rewinding.task)
    return json_response({"messages": int(rewinding.count)})


async def read(request: web.Request) -> web.StreamResponse:
    """Return ready messages without consuming them.

    The body may have the fields of the argument `x-browse` (`position`, `routing-key`, `headers`),
    `count`, `after` from the previous answer, and `truncate`, which cuts message bodies as in
    `get`.  The last page has `"after": null`.

    Raises: PreconditionFailed (406) for a staging queue, which cannot be consumed from either.
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
            f"staging queue '{queue.name}' cannot be browsed: list_sinks shows its contents"
        )
    begin = None if after < 0 else after
    page = browse(queue, browse_filter(wanted, f"queue '{queue.name}'"), begin, count)
    shown: list[Shown] = []
    room = Room()
    last = page.after
    before = -1
    for item in page.items:
        found = _row(item, truncate)
        size = len(item.message.properties) + len(found.payload)
        if not room.takes(size):
            last = before
            break
        book(request, size)
        shown.append(found)
        before = item.sequence
        if len(shown) % MESSAGES_AT_ONCE == 0:
            await next_slice()
    # Release the other messages, so that they can be freed while the answer is sent.
    del page
    return await answer_messages(
        request, shown, '{"items": [', f'], "after": {"null" if last is None else int(last)}}}'
    )


def _row(item: RequeuedMessage, truncate: int) -> Shown:
    """Return a message as in the answer of RabbitMQ's `get`, with its sequence."""
    message = item.message
    row: Row = {
        "sequence": int(item.sequence),
        "exchange": message.address.exchange.decode("utf-8", "replace"),
        "routing_key": message.address.routing_key.decode("utf-8", "replace"),
        "redelivered": item.count > 0,
        "timestamp": int(message.timestamp_ms),
        "payload_bytes": len(message.body),
    }
    return Shown(row, message.properties, cut(message.body, truncate), auto=True)


ROUTES: Final = (
    ApiRoute("DELETE", "/api/queues/{vhost}/{name}", delete, MANAGEMENT),
    ApiRoute("DELETE", "/api/queues/{vhost}/{name}/contents", purge, MANAGEMENT),
    ApiRoute(
        "POST",
        "/api/queues/{vhost}/{name}/rewind",
        rewind,
        MANAGEMENT,
        body={"timestamp": NUMBER},
        required=("timestamp",),
    ),
    ApiRoute(
        "POST",
        "/api/queues/{vhost}/{name}/browse",
        read,
        MANAGEMENT,
        body={
            "count": NUMBER,
            "after": NUMBER,
            "position": NUMBER,
            "routing-key": TEXT,
            "headers": TABLE,
            "truncate": NUMBER,
        },
        heavy=True,
        logged=False,
    ),
)
