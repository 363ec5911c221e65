"""Publishes the messages of a HareMQ connection, and answers the requests.

Like a confirm in AMQP, the answer follows when the message is as safe as its queues promise.  If a
queue rejects the message, the answer is `ok=false`.  For an unroutable message it is `ok=true`,
because that is not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.scheduler.costs import ROUTE_RESOLVED
from leveret.broker.vhost.vhost import RECORDED, REJECTED, Vhost
from leveret.errors import AmqpError, FrameError, PreconditionFailed
from leveret.haremq.fields import DURABLE
from leveret.haremq.frames import PUBLISH, REQUESTS
from leveret.limits import FAN_OUT_COPIES, SHORT_STRING_BYTES_MAX
from leveret.message import Message
from leveret.session.channel.confirms import group_of, late_outcome
from leveret.session.publish.fan_out import spread
from leveret.session.publish.route import Route, route_of, unrefused
from leveret.session.publish.route_cache import RouteCache

if TYPE_CHECKING:
    from leveret.haremq.connection import HareConnection

#: The property flags for a delivery mode, without and with a message id.
_MODE_ONLY: Final = b"\x10\x00"
_MODE_AND_ID: Final = b"\x10\x80"


@final
class HarePublisher:
    """Handles the publishes of one connection."""

    def __init__(self, connection: HareConnection) -> None:
        self._connection = connection
        #: The routes by exchange and routing key, separated by a byte that never occurs in UTF-8.
        self.cache = RouteCache(connection)

    def take(
        self,
        identity: bytes,
        cid: bytes,
        exchange: bytes,
        routing_key: bytes,
        body: bytes,
        message_id: bytes,
        delivery_mode: i64,
    ) -> None:
        """Publish a message and answer the request."""
        connection = self._connection
        vhost = connection.vhost
        assert vhost is not None
        if cid not in connection.channels:
            connection.refuse(identity, REQUESTS[PUBLISH], "there is no such channel")
            return
        connection.current.publish(0, connection.published)
        try:
            route = self._route(vhost, exchange, routing_key)
            _check_sizes(connection, body, message_id)
            message = self._message(route, body, message_id, delivery_mode == DURABLE)
            found: Destinations = route
            if route.dynamic:
                found = unrefused(
                    vhost.route(route.exchange, route.routing_key, message.properties)
                )
        except FrameError:
            # A frame with a name that is not UTF-8 is malformed.
            raise
        except AmqpError as error:
            connection.refuse(identity, REQUESTS[PUBLISH], error.text)
            return
        route.exchange.published_in += 1
        connection.count_published(len(body))
        if len(found.targets) > FAN_OUT_COPIES:
            connection.start(_fan_out(connection, vhost, message, found, identity))
            connection.check_slice()
        else:
            answer_publish(connection, identity, self._publish(vhost, message, found))

    def _message(self, route: Route, body: bytes, message_id: bytes, persistent: bool) -> Message:
        """Return the message for a request."""
        mode = b"\x02" if persistent else b"\x01"
        if message_id:
            properties = _MODE_AND_ID + mode + bytes((len(message_id),)) + message_id
        else:
            properties = _MODE_ONLY + mode
        return Message(route.address, properties, body, self._connection.core.now_ms, persistent)

    def _publish(self, vhost: Vhost, message: Message, found: Destinations) -> i64:
        """Publish a message to its queues; return the outcome of `Vhost.publish`."""
        connection = self._connection
        core = connection.core
        targets = found.targets
        outcome: i64 = 0
        if not targets:
            core.counts.unroutable_dropped += 1
        else:
            outcome = vhost.publish(message, targets, connection.as_owner)
            if len(targets) > 1:
                connection.spend(len(targets))
        if core.events is not None:
            core.events.published(vhost.name, message, len(targets), targets)
        return outcome

    def _route(self, vhost: Vhost, exchange: bytes, routing_key: bytes) -> Route:
        """Return the cached or new route of an exchange and a routing key.

        Raises: FrameError (501), NotFound (404), AccessRefused (403), PreconditionFailed (406).
        """
        key = exchange + b"\xff" + routing_key
        known = self.cache.known.get(key)
        if known is not None and known.revision == vhost.revision:
            return known
        connection = self._connection
        if len(exchange) > SHORT_STRING_BYTES_MAX or len(routing_key) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(f"a name can have at most {SHORT_STRING_BYTES_MAX} bytes")
        connection.scheduler.spent += ROUTE_RESOLVED
        # Messages of HareMQ have no headers.
        route = route_of(connection.access, vhost, exchange, routing_key, False, b"")
        if route.special:
            raise PreconditionFailed("a batch can be staged and committed only over AMQP")
        self.cache.remember(key, route)
        return route


def _fan_out(
    connection: HareConnection,
    vhost: Vhost,
    message: Message,
    found: Destinations,
    identity: bytes,
) -> Iterator[int]:
    """Publish a message to thousands of queues; answer if the connection is still open."""
    targets = found.targets
    outcome = yield from spread(vhost, message, targets, connection.as_owner)
    events = connection.core.events
    if events is not None:
        events.published(vhost.name, message, len(targets), targets)
    if connection.awaits_reply():
        answer_publish(connection, identity, late_outcome(connection.core.journal, outcome))


def answer_publish(connection: HareConnection, identity: bytes, outcome: i64) -> None:
    """Answer a publish according to its outcome."""
    group = group_of(connection.core.journal, outcome)
    connection.answers.answer(identity, outcome & REJECTED == 0, group)
    connection.check_publisher(outcome & RECORDED != 0)


def _check_sizes(connection: HareConnection, body: bytes, message_id: bytes) -> None:
    """Check the sizes of a body and a message id.  Raises: PreconditionFailed (406)."""
    most = connection.settings.message_bytes_max
    if len(body) > most:
        raise PreconditionFailed(
            f"message size {len(body)} is larger than configured max size {most}"
        )
    if len(message_id) > SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"a message id can have at most {SHORT_STRING_BYTES_MAX} bytes")
