"""Publishing: the one path that every message takes from bytes to queues.

`take_whole` handles a publish (method, header, one body frame) in one step when all of it lies in
the input; what does not fit that shape comes frame by frame (`content`) and ends in `accept` too.
What is staged or committed (`staged`), or `immediate`, branches off there.

The arguments of a publish are the key of a memory of resolved routes: the same exchange and routing
key cost one look-up.  A declare, bind or delete anywhere in the vhost makes the remembered routes
stale.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.queue.queue import is_reached
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.limits import ROUTES_CACHED_MAX
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.channel.channels import Channels
from leveret.session.channel.content import NO_CONTENT
from leveret.session.channel.transaction import TxPublish
from leveret.session.connection_base import ConnectionBase
from leveret.session.publish.immediate import accept_immediate
from leveret.session.publish.inspect import INSPECTED, INSPECTED_LOW, addressed, inspect
from leveret.session.publish.route import (
    ALREADY_TAKEN,
    Route,
    check_publisher,
    queues_of,
    resolve,
    return_message,
    unrefused,
)
from leveret.session.publish.staged import accept_special
from leveret.wire.properties import PERSISTENT, skim_properties


@final
class Publisher:
    """What takes the publishes of one connection."""

    def __init__(self, connection: ConnectionBase, channels: Channels) -> None:
        self._connection = connection
        self._current = connection.current
        self._reader = connection.reader
        self._shape = connection.shape
        self._channels = channels
        self.routes: dict[bytes, Route] = {}

    def forget_routes(self) -> None:
        """Forget every route: the connection ends."""
        self.routes.clear()

    def take_whole(self) -> None:
        """Handle the publishes that lie whole at the front of the input.

        Stops at anything else, and when the connection is halted.
        """
        connection = self._connection
        reader = self._reader
        shape = self._shape
        channels = self._channels
        data = reader.data
        size: i64 = len(data)
        while connection.halted == 0 and shape.find(data, size, reader.position):
            channel = channels.recent
            if channel is None or channel.number != shape.channel:
                channel = channels.by_number.get(shape.channel)
                if channel is None:
                    return
                channels.recent = channel
            if channel.closing or channel.content.state != NO_CONTENT:
                return
            self._current.publish(shape.channel, connection.published)
            mode = skim_properties(data, shape.properties, shape.properties_end)
            reader.position = shape.after
            self.accept(
                channel,
                data[shape.arguments : shape.arguments_end],
                data[shape.properties : shape.properties_end],
                data[shape.body : shape.body_end],
                mode == PERSISTENT,
            )

    def take_content(self, channel: Channel) -> None:
        """Handle the publish whose content has come whole, frame by frame.  Raises: as `accept`."""
        content = channel.content
        body = content.take_whole()
        self.accept(channel, content.arguments, content.properties, body, content.persistent)

    def accept(
        self, channel: Channel, arguments: bytes, properties: bytes, body: bytes, persistent: bool
    ) -> None:
        """Route one message and put it into its queues, its transaction, or nowhere.

        Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406), NotImplementedFault
        (540), SyntaxFault (502).
        """
        connection = self._connection
        route = self.routes.get(arguments)
        vhost = channel.vhost
        if route is None or route.revision != vhost.revision:
            route = self._resolve(channel, arguments)
        if route.special:
            if route.immediate:
                accept_immediate(channel, route, properties, body, persistent)
            else:
                accept_special(channel, route, properties, body)
            return
        more_keys: list[str] | None = None
        address = route.address
        numbered = False
        if properties[0] & INSPECTED or properties[1] & INSPECTED_LOW:
            inspected = inspect(channel, properties)
            if inspected is not None:
                properties = inspected.properties
                more_keys = inspected.more_keys
                address = addressed(address, inspected)
                numbered = inspected.numbered
                if numbered:
                    check_publisher(channel, route, inspected.publisher, more_keys, properties)
        turn = connection.turn
        message = Message(address, properties, body, turn.now_ms, persistent, False, numbered)
        queues = route.queues
        if more_keys:
            queues = queues_of(channel, route, more_keys, properties)
        elif route.dynamic:
            queues = unrefused(vhost.route(route.exchange, route.routing_key, properties))
        if numbered:
            vhost.check_publisher(properties, queues, connection.as_owner)
        route.exchange.published_in += 1
        connection.published += 1
        if channel.mode == TX:
            channel.transaction.hold(TxPublish(message, queues, route.mandatory))
            connection.check_publisher(True)
            return
        outcome: i64 = 0
        if queues:
            outcome = vhost.publish(message, queues, connection.as_owner)
        if turn.events is not None:
            turn.events.published(vhost.name, message, len(queues))
        if route.mandatory:
            if not is_reached(queues):
                return_message(channel, message)
            elif outcome & KNOWN and connection.capabilities.already_taken:
                return_message(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
        if channel.mode == CONFIRM:
            channel.confirms.count(outcome)
        connection.check_publisher(outcome & RECORDED != 0)

    def _resolve(self, channel: Channel, arguments: bytes) -> Route:
        """Resolve the arguments of a publish and remember the result."""
        route = resolve(channel, arguments)
        routes = self.routes
        if len(routes) >= ROUTES_CACHED_MAX:
            routes.clear()
        routes[arguments] = route
        return route
