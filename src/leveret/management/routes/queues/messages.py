"""`POST /api/queues/{vhost}/{name}/get`: gets messages from a queue, for inspection.

The messages are got with manual acks, and settled once all are collected.  An error before that
requeues them.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.queue.browse import BrowseFilter, browse
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.errors import PreconditionFailed
from leveret.management.api_route import NUMBER, ApiRoute
from leveret.management.bodies import object_of, text_of, written_number_of
from leveret.management.direct import DirectAnswer
from leveret.management.gate import book, may_read
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MANAGEMENT
from leveret.management.routes.queues.actions import MESSAGES_AT_ONCE, MESSAGES_MAX
from leveret.management.routes.queues.payloads import (
    PIECE_BYTES,
    Room,
    Shown,
    answer_messages,
    cut,
)
from leveret.management.routes.shared import (
    OPERATOR,
    Row,
    as_user,
    found_vhost,
    name_of,
)
from leveret.wire.methods import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicReject,
)

#: The ways to settle messages; `ack_requeue_true` requeues them when the channel closes.
_ACK_MODES: Final = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)


async def get(request: web.Request) -> web.StreamResponse:
    """Return up to `count` messages; `ackmode` determines how they are settled.

    An answer has at most `HTTP_MESSAGES_BYTES_MAX`, or a single larger message.  The first message
    beyond this limit is requeued.
    """
    body = await object_of(request)
    ack_mode = text_of(body, "ackmode")
    count = written_number_of(body, "count")
    encoding = text_of(body, "encoding")
    truncate = written_number_of(body, "truncate", -1)
    if ack_mode not in _ACK_MODES:
        raise PreconditionFailed(f"the field 'ackmode' must be one of {', '.join(_ACK_MODES)}")
    if not 0 <= count <= MESSAGES_MAX:
        raise PreconditionFailed(f"the field 'count' must be 0 to {MESSAGES_MAX}")
    if encoding not in ("auto", "base64"):
        raise PreconditionFailed("Unsupported encoding. Please use auto or base64.")
    vhost = found_vhost(request)
    name = name_of(request, "name")
    may_read(request, name)
    queue = vhost.queues.existing(name, None)
    # The first message may be large, so its memory is booked before getting it.
    booked = _first_bytes(queue)
    book(request, booked)
    rows: list[Shown] = []
    room = Room()
    async with as_user(request, vhost.name) as channel:
        while len(rows) < count and not room.is_full():
            answer = await channel.request(BasicGet(queue.name), BasicGetOk, BasicGetEmpty)
            if not isinstance(answer.method, BasicGetOk):
                break
            size = len(answer.properties) + len(answer.body)
            if not room.takes(size):
                channel.send(BasicNack(answer.method.delivery_tag, False, True))
                break
            book(request, max(0, size - booked))
            booked = max(0, booked - size)
            rows.append(_row(answer, answer.method, encoding, truncate))
            if len(rows) % MESSAGES_AT_ONCE == 0 or size > PIECE_BYTES:
                await next_slice()
        if rows and ack_mode == "ack_requeue_false":
            channel.send(BasicAck(len(rows), True))
        elif ack_mode.startswith("reject"):
            for tag in range(1, len(rows) + 1):
                channel.send(BasicReject(tag, ack_mode == "reject_requeue_true"))
        await channel.close_channel()
    await request.app[OPERATOR].durable()
    return await answer_messages(request, rows)


def _first_bytes(queue: Queue) -> int:
    """Return the size of the first message, or 0 if it is unknown."""
    if not isinstance(queue, WaitingQueue):
        return 0
    first = browse(queue, BrowseFilter(), None, 1).items
    return len(first[0].message.properties) + len(first[0].message.body) if first else 0


def _row(answer: DirectAnswer, got: BasicGetOk, encoding: str, truncate: int) -> Shown:
    """Return a message as in RabbitMQ's API."""
    row: Row = {
        "payload_bytes": len(answer.body),
        "redelivered": got.redelivered,
        "exchange": got.exchange,
        "routing_key": got.routing_key,
        "message_count": got.message_count,
    }
    return Shown(row, answer.properties, cut(answer.body, truncate), encoding == "auto")


ROUTES: Final = (
    ApiRoute(
        "POST",
        "/api/queues/{vhost}/{name}/get",
        get,
        MANAGEMENT,
        body={
            "count": NUMBER,
            "ackmode": {
                "enum": [
                    "ack_requeue_true",
                    "ack_requeue_false",
                    "reject_requeue_true",
                    "reject_requeue_false",
                ]
            },
            "encoding": {"enum": ["auto", "base64"]},
            "truncate": NUMBER,
        },
        required=("count", "ackmode", "encoding"),
        heavy=True,
        logged=False,
    ),
)
