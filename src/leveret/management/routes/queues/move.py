"""`POST /api/queues/{vhost}/{name}/move`: moves ready messages to another queue of the vhost.

Each message is got, published to the other queue through the default exchange, and acked once the
publish is confirmed.  An error between these steps loses no message; after a crash, the last
message may be in both queues.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from leveret.broker.queue.queue import Queue
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import NUMBER, TEXT, ApiRoute
from leveret.management.audit import PARTLY_DONE
from leveret.management.bodies import number_of, object_of, text_of
from leveret.management.direct import DirectAnswer, DirectChannel
from leveret.management.gate import may_read, may_write
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MANAGEMENT
from leveret.management.routes.queues.actions import MESSAGES_AT_ONCE, MESSAGES_MAX
from leveret.management.routes.queues.payloads import PIECE_BYTES
from leveret.management.routes.shared import (
    BROKER,
    OPERATOR,
    as_user,
    found_vhost,
    json_response,
    name_of,
)
from leveret.names import Name, cleaned
from leveret.wire.methods import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
)
from leveret.wire.properties import BasicProperties, decode_properties

#: The maximum number of messages that are examined; all of them are unacked during the request.
_LOOKED_MAX: Final = 10_000

#: The cost of a byte of properties relative to a byte of a body, because properties are decoded:
#: 4,096 headers of five bytes each take a millisecond.
_PROPERTIES_WEIGHT: Final = 4

#: Headers that would route copies of a message to other queues.
_COPIES: Final = ("CC", "BCC")


class _MoveRequest:
    """The options of a request.

    `reason` and `queue` select the messages that were last dead-lettered for that reason from that
    queue; empty selects all messages.
    """

    def __init__(self, body: dict[str, object], source: Name) -> None:
        """Raises: PreconditionFailed (400 in HTTP)."""
        self.to: Final = cleaned(text_of(body, "to"))
        self.count: Final = number_of(body, "count", MESSAGES_MAX)
        self.reason: Final = text_of(body, "reason", "")
        self.queue: Final = text_of(body, "queue", "")
        if not 0 < self.count <= MESSAGES_MAX:
            raise PreconditionFailed(f"the field 'count' must be 1 to {MESSAGES_MAX}")
        if self.to == source:
            raise PreconditionFailed("the field 'to' must be another queue")

    def fits(self, properties: BasicProperties) -> bool:
        """Return whether a message is selected."""
        if not self.reason and not self.queue:
            return True
        deaths: Any = (properties.headers or {}).get("x-death")
        last = deaths[0] if isinstance(deaths, list) and deaths else None
        if not isinstance(last, dict):
            return False
        wanted = (("reason", self.reason), ("queue", self.queue))
        return all(not value or last.get(name) == value for name, value in wanted)


async def move(request: web.Request) -> web.Response:
    """Move up to `count` messages to the queue `to`, in their order; return their number.

    Messages excluded by `reason` and `queue` are got too, and requeued at their positions, marked
    as redelivered.

    Raises: NotFound (404) for either queue; PreconditionFailed (400 in HTTP) if the other queue
    refuses a message, after the messages before it have been moved.
    """
    body = await object_of(request)
    vhost = found_vhost(request)
    name = name_of(request, "name")
    wish = _MoveRequest(body, name)
    may_read(request, name)
    may_write(request, Name(""), "exchange")
    source = vhost.queues.existing(name, None)
    vhost.queues.existing(wish.to, None)
    if request.app[BROKER].blocked:
        reason = f"publishers are blocked: {request.app[BROKER].blocked_reason}"
        answer = {"error": "service_unavailable", "reason": reason}
        return json_response(answer, 503, {"Retry-After": "5"})
    async with as_user(request, vhost.name) as channel:
        await channel.request(ConfirmSelect(), ConfirmSelectOk)
        moved, left = await _moved(request, channel, source, wish)
        await channel.close_channel()
    await request.app[OPERATOR].durable()
    return json_response({"messages": moved, "left": left})


async def _moved(
    request: web.Request, channel: DirectChannel, source: Queue, wish: _MoveRequest
) -> tuple[int, bool]:
    """Move messages; return their number, and whether there may be more."""
    moved = looked = unshared = 0
    while moved < wish.count and looked < _LOOKED_MAX:
        answer = await channel.request(BasicGet(source.name), BasicGetOk, BasicGetEmpty)
        if not isinstance(answer.method, BasicGetOk):
            return moved, False
        looked += 1
        properties = decode_properties(answer.properties)
        if wish.fits(properties):
            await _hand_over(channel, answer, properties, wish.to)
            channel.send(BasicAck(answer.method.delivery_tag, False))
            moved += 1
            request[PARTLY_DONE] = True
        # The bytes decoded or published in this slice.
        unshared += _PROPERTIES_WEIGHT * len(answer.properties) + len(answer.body)
        if looked % MESSAGES_AT_ONCE == 0 or unshared > PIECE_BYTES:
            unshared = 0
            await next_slice()
    return moved, True


async def _hand_over(
    channel: DirectChannel, message: DirectAnswer, properties: BasicProperties, to: Name
) -> None:
    """Publish a message to a queue.  Raises: NotFound (404); PreconditionFailed (400 in HTTP)."""
    written = message.properties
    headers = properties.headers or {}
    if any(name in headers for name in _COPIES):
        fields = {name: getattr(properties, name) for name in properties.FIELDS}
        fields["headers"] = {name: headers[name] for name in headers if name not in _COPIES}
        written = BasicProperties(**fields).encode()
    found = await channel.publish("", to, written, message.body, BasicAck, BasicNack)
    if isinstance(found[-1].method, BasicNack):
        raise PreconditionFailed(f"queue '{to}' accepts no more messages; check its limits")
    if isinstance(found[0].method, BasicReturn):
        raise NotFound(f"no queue '{to}'")


ROUTES: Final = (
    ApiRoute(
        "POST",
        "/api/queues/{vhost}/{name}/move",
        move,
        MANAGEMENT,
        body={"to": TEXT, "count": NUMBER, "reason": TEXT, "queue": TEXT},
        required=("to",),
        heavy=True,
    ),
)
