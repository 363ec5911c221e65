"""Publishing: the path of every message from bytes to queues.

`take_whole` handles a publish (method, header, one body frame) in one call if all of it is in the
input; other publishes arrive frame by frame (`content`), and `accept` handles these too.  Staged
messages and commits of batches (`staged`), `immediate` messages, and messages to thousands of
queues (`fan_out`) are passed on from there.

Resolved routes are cached by the encoded arguments of the publish, so another publish with the same
exchange and routing key costs one look-up.  A declare, bind or delete anywhere in the vhost makes
the cached routes stale.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.scheduler.costs import ROUTE_RESOLVED
from leveret.broker.scheduler.link import may_go_on
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.errors import AmqpError
from leveret.limits import FAN_OUT_COPIES
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.session.channel.channels import Channels
from leveret.session.channel.content import NO_CONTENT
from leveret.session.channel.transaction import TxPublish
from leveret.session.connection_base import ConnectionBase
from leveret.session.publish.fan_out import fan_out
from leveret.session.publish.inspect import INSPECTED, INSPECTED_LOW, addressed, inspect
from leveret.session.publish.returns import ALREADY_TAKEN, return_message
from leveret.session.publish.route import Route, check_publisher, found_for, resolve
from leveret.session.publish.route_cache import RouteCache
from leveret.session.publish.staged import accept_special
from leveret.wire.content.publish import is_equal
from leveret.wire.properties import PERSISTENT, skim_properties

#: The longest properties that are kept to be compared with those of the next publish.
_KEPT_PROPERTIES_BYTES: Final = 1024


@final
class Publisher:
    """Handles the publishes of one connection."""

    def __init__(self, connection: ConnectionBase, channels: Channels) -> None:
        self._connection = connection
        self._current = connection.current
        self._reader = connection.reader
        self._shape = connection.shape
        self._channels = channels
        self.cache = RouteCache(connection)
        #: The properties of the publish before, which are legal, and their delivery mode.
        self._properties = b""
        self._mode: i64 = 0

    def take_whole(self) -> None:
        """Handle the complete publishes at the beginning of the input.

        Stop at anything else, and when the connection is halted.
        """
        connection = self._connection
        reader = self._reader
        shape = self._shape
        channels = self._channels
        reader.reach_rest()
        data = reader.data
        size: i64 = len(data)
        while (
            connection.halted == 0
            # The extra cost of each publish is counted as it is handled.
            and may_go_on(connection)
            and shape.find(data, size, reader.position)
        ):
            channel = channels.recent
            if channel is None or channel.number != shape.channel:
                channel = channels.by_number.get(shape.channel)
                if channel is None:
                    return
                channels.recent = channel
                channel.publishes = True
            if channel.closing or channel.content.state != NO_CONTENT:
                return
            self._current.publish(shape.channel, connection.published)
            # Most publishes are like the one before.
            start, end = shape.properties, shape.properties_end
            properties = self._properties
            mode = self._mode
            if not is_equal(data, start, end, properties):
                mode = skim_properties(data, start, end)
                properties = data[start:end]
                if end - start <= _KEPT_PROPERTIES_BYTES:
                    self._mode = mode
                    self._properties = properties
            start, end = shape.arguments, shape.arguments_end
            arguments = self.cache.last_key
            if not is_equal(data, start, end, arguments):
                arguments = data[start:end]
            reader.position = shape.after
            self.accept(
                channel,
                arguments,
                properties,
                data[shape.body : shape.body_end],
                mode == PERSISTENT,
            )

    def will_record(self, channel: ServerChannel) -> bool:
        """Return whether the journal would record the persistent message whose header has arrived.

        A message that `accept` would refuse is not recorded.
        """
        if self._connection.broker.blocked or channel.mode == TX:
            return False
        content = channel.content
        route = self.cache.find(content.arguments)
        if route is None or route.revision != channel.vhost.revision:
            try:
                route = self._resolve(channel, content.arguments, content.properties)
            except AmqpError:
                return False
        return not route.special and any(target.recorded for target in route.targets)

    def take_content(self, channel: ServerChannel) -> None:
        """Handle a publish whose content arrived frame by frame.  Raises: as `accept`."""
        content = channel.content
        body = content.take_whole()
        channel.publishes = True
        try:
            self.accept(channel, content.arguments, content.properties, body, content.persistent)
        finally:
            content.end_journal_body()

    def accept(
        self,
        channel: ServerChannel,
        arguments: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
    ) -> None:
        """Route one message, and put it into its queues or the transaction, or return or drop it.

        Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406), NotImplementedFault
        (540), SyntaxFault (502).
        """
        connection = self._connection
        route = self.cache.find(arguments)
        vhost = channel.vhost
        routed = False
        if route is None or route.revision != vhost.revision:
            route = self._resolve(channel, arguments, properties)
            routed = not route.unrouted
        if route.special:
            accept_special(channel, route, properties, body, persistent)
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
        core = connection.core
        message = Message(address, properties, body, core.now_ms, persistent, False, numbered)
        found: Destinations = route
        if more_keys or (route.dynamic and not routed):
            found = found_for(channel, route, more_keys, properties)
        targets = found.targets
        if numbered:
            check_publisher(vhost, properties, targets, connection.as_owner)
        route.exchange.published_in += 1
        connection.published += 1
        core.sizes.note(len(body))
        if channel.mode == TX:
            channel.transaction.hold(TxPublish(message, found, route.mandatory))
            connection.check_publisher(True)
            return
        outcome: i64 = 0
        if targets:
            if len(targets) > 1:
                if len(targets) > FAN_OUT_COPIES:
                    fan_out(channel, message, found, route.mandatory)
                    return
                connection.spend(len(targets))
            outcome = vhost.publish(message, targets, connection.as_owner)
        elif not route.mandatory:
            core.counts.unroutable_dropped += 1
        if core.events is not None:
            core.events.published(vhost.name, message, len(targets), targets)
        if route.mandatory:
            _give_back(channel, message, found, outcome)
        if channel.mode == CONFIRM:
            channel.confirms.count(outcome)
        connection.check_publisher(outcome & RECORDED != 0)

    def _resolve(self, channel: ServerChannel, arguments: bytes, properties: bytes) -> Route:
        """Resolve the arguments of a publish and cache the route."""
        self._connection.scheduler.spent += ROUTE_RESOLVED
        route = resolve(channel, arguments, properties)
        self._connection.check_slice()
        if route.unrouted:
            return route
        self.cache.remember(arguments, route)
        return route


def _give_back(channel: ServerChannel, message: Message, found: Destinations, outcome: i64) -> None:
    """Return a mandatory message that is unroutable, or a duplicate for all its queues."""
    if not found.reached():
        return_message(channel, message)
    elif outcome & KNOWN and channel.connection.capabilities.already_taken:
        return_message(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
