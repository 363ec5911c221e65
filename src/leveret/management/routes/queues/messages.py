"""`POST /api/queues/{vhost}/{name}/get`: messages taken out of a queue, for who looks into it.

They are got with acks, and settled when the answer is made: what goes wrong before requeues all.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Final

from aiohttp import web

from leveret.errors import PreconditionFailed
from leveret.management.bodies import object_of, text_of, written_number_of
from leveret.management.direct import DirectAnswer
from leveret.management.fields import plain
from leveret.management.gate import may_read
from leveret.management.routes.queues.actions import MESSAGES_MAX
from leveret.management.routes.shared import (
    OPERATOR,
    Row,
    as_user,
    found_vhost,
    json_response,
    name_of,
)
from leveret.wire.methods import BasicAck, BasicGet, BasicGetEmpty, BasicGetOk, BasicReject
from leveret.wire.properties import decode_properties

#: What becomes of messages; the closing channel requeues what is neither acked nor rejected.
_ACK_MODES: Final = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)

#: After so many bytes of bodies an answer has no further message.
_BODY_BYTES_MAX: Final = 16 * 1024 * 1024


async def get(request: web.Request) -> web.Response:
    """Return up to `count` messages; `ackmode` says what becomes of them."""
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
    queue = vhost.queues.existing(name, None).name
    rows: list[Row] = []
    size = 0
    async with as_user(request, vhost.name) as channel:
        while len(rows) < count and size < _BODY_BYTES_MAX:
            answer = await channel.request(BasicGet(queue), BasicGetOk, BasicGetEmpty)
            if not isinstance(answer.method, BasicGetOk):
                break
            size += len(answer.body)
            rows.append(_row(answer, answer.method, encoding, truncate))
        if rows and ack_mode == "ack_requeue_false":
            channel.send(BasicAck(len(rows), True))
        elif ack_mode.startswith("reject"):
            for tag in range(1, len(rows) + 1):
                channel.send(BasicReject(tag, ack_mode == "reject_requeue_true"))
        await channel.close_channel()
    await request.app[OPERATOR].durable()
    return json_response(rows)


def _row(answer: DirectAnswer, got: BasicGetOk, encoding: str, truncate: int) -> Row:
    """Return a message as RabbitMQ shows it."""
    properties = decode_properties(answer.properties)
    names = [name for name in properties.FIELDS if getattr(properties, name) is not None]
    shown = answer.body if truncate < 0 else answer.body[:truncate]
    payload, written = base64.b64encode(shown).decode(), "base64"
    if encoding == "auto":
        with contextlib.suppress(UnicodeDecodeError):
            payload, written = shown.decode(), "string"
    return {
        "payload_bytes": len(answer.body),
        "redelivered": got.redelivered,
        "exchange": got.exchange,
        "routing_key": got.routing_key,
        "message_count": got.message_count,
        "properties": {name: plain(getattr(properties, name)) for name in names},
        "payload": payload,
        "payload_encoding": written,
    }


ROUTES: Final = (web.post("/api/queues/{vhost}/{name}/get", get),)
