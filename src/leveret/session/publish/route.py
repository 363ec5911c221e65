"""The routing of a publish: checks its arguments, and finds its destinations."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.cc_bcc import has_copies
from leveret.broker.exchanges.exchange import Exchange, Routing
from leveret.broker.ownership import Owner
from leveret.broker.queue.target import Destinations, Target
from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.broker.sinks.staging import StagingQueue, StagingTarget
from leveret.broker.users.access import Access
from leveret.broker.users.permissions import WRITE
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import (
    AccessRefused,
    FrameError,
    NotImplementedFault,
    PreconditionFailed,
)
from leveret.message import Address
from leveret.names import Name, check_new, cleaned, is_plain
from leveret.routing.keys import check_strict_routing_key
from leveret.session.channel.channel import ServerChannel
from leveret.session.publish.topic_permissions import check_reached
from leveret.wire.content.publish import IMMEDIATE, MANDATORY, publish_arguments
from leveret.wire.methods import BasicPublish


@final
@mypyc_attr(acyclic=True)
class Route(Destinations):
    """The resolved arguments of a publish: its destinations and flags.

    The destinations are the same for all messages unless `dynamic` is true.
    """

    def __init__(
        self,
        exchange: Exchange,
        address: Address,
        routing: Routing,
        mandatory: bool,
        revision: i64,
    ) -> None:
        super().__init__(routing.targets, routing.taps)
        self.exchange: Final = exchange
        self.address = address
        self.routing_key: Final = routing.routing_key
        #: True if the route depends on headers, so that each message is routed individually.
        self.dynamic: Final = routing.dynamic
        self.mandatory: Final = mandatory
        self.revision: i64 = revision
        #: True if the message must still be routed, because CC or BCC may add keys.
        self.unrouted = False
        #: The staging queue to which the default exchange routes, if any.
        self.staging: StagingQueue | None = None
        #: True for the commit of a batch.
        self.commits = False
        #: True for staged messages, for commits, and for immediate messages.
        self.special = False
        self.immediate = False
        if not exchange.name:
            # Staging queues and commits are reached only through the default exchange.
            self.commits = self.routing_key == COMMIT_KEY
            for target in self.targets:
                if isinstance(target, StagingTarget):
                    self.staging = target.queue
                    if target.queue.address is not None:
                        self.address = target.queue.address
            self.special = self.commits or self.staging is not None


def resolve(channel: ServerChannel, raw: bytes, properties: bytes) -> Route:
    """Resolve the arguments of a publish, as `route_of` does.

    Raises: SyntaxFault (502), FrameError (501) for a name that is not UTF-8; NotImplementedFault
    (540) for `immediate` from RabbitMQ clients; NotFound (404), AccessRefused (403) and
    PreconditionFailed (406) as `writable`.
    """
    exchange, routing_key, flags = publish_arguments(raw)
    immediate = flags & IMMEDIATE != 0
    if immediate and channel.connection.settings.compatible:
        raise NotImplementedFault("immediate=true", BasicPublish.CLASS_ID, BasicPublish.METHOD_ID)
    connection = channel.connection
    mandatory = flags & MANDATORY != 0
    route = route_of(connection.access, channel.vhost, exchange, routing_key, mandatory, properties)
    if immediate:
        # Staged messages and commits ignore the flag.
        route.immediate = not route.special
        route.special = True
    return route


def route_of(
    access: Access,
    vhost: Vhost,
    exchange: bytes,
    routing_key: bytes,
    mandatory: bool,
    properties: bytes,
) -> Route:
    """Return the route of a user's publish to an exchange with a routing key.

    `properties` are those of the current message; a `dynamic` route is valid only for it.  If CC or
    BCC may add keys, the message is not routed yet (`Route.unrouted`).  It is routed later, once
    for all its keys, because a single routing may use up the limit of a message.

    Raises: FrameError (501) for a name that is not UTF-8; NotFound (404), AccessRefused (403) and
    PreconditionFailed (406) as `writable`, and if routing would take too long.
    """
    name, key = decoded(vhost, exchange, routing_key)
    found = writable(access, vhost, name, key)
    address = Address(found.name_bytes, routing_key)
    if found.name and has_copies(properties):
        routing = Routing(key, properties)
        routing.dynamic = True
        route = Route(found, address, routing, mandatory, vhost.revision)
        route.unrouted = True
        return route
    routing = vhost.route(found, key, properties)
    unrefused(routing)
    return Route(found, address, routing, mandatory, vhost.revision)


def decoded(vhost: Vhost, exchange: bytes, routing_key: bytes) -> tuple[Name, str]:
    """Decode and clean an exchange's name, and decode a routing key.

    Raises: FrameError (501) if either is not UTF-8.
    """
    text, key = from_utf8(exchange, routing_key)
    # The name of an existing exchange is clean, and looking it up costs less than searching for
    # line ends with each new routing key.
    known = vhost.exchanges.by_name.get(text)
    return known.name if known is not None else cleaned(text), key


def from_utf8(exchange: bytes, routing_key: bytes) -> tuple[str, str]:
    """Decode an exchange's name and a routing key.

    Raises: FrameError (501) if either is not UTF-8.
    """
    try:
        return exchange.decode("utf-8"), routing_key.decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError(
            "a name is not UTF-8", BasicPublish.CLASS_ID, BasicPublish.METHOD_ID
        ) from None


def writable(access: Access, vhost: Vhost, name: Name, key: str) -> Exchange:
    """Return the exchange, after checking that the user may publish to it with that routing key.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406) for a key that is not
    strict in a vhost that requires it.
    """
    access.write("exchange", name)
    exchange = vhost.exchanges.existing(name)
    if exchange.internal:
        raise AccessRefused(
            f"cannot publish to internal {vhost.exchange_label(name)}",
            BasicPublish.CLASS_ID,
            BasicPublish.METHOD_ID,
        )
    if vhost.strict_keys and exchange.has_patterns:
        check_strict_routing_key(key)
    if exchange.has_patterns:
        access.check_topic(WRITE, name, key)
    return exchange


def check_copies(
    channel: ServerChannel, exchange: Exchange, key: str, copies: list[str], properties: bytes
) -> Routing | None:
    """Check that the user may also publish with the keys of CC and BCC.

    Return the routing of the message if the check required it, otherwise None.

    Raises: AccessRefused (403); PreconditionFailed (406) for a key that is not strict.
    """
    routing = check_reached(channel, exchange, key, copies, properties)
    if channel.vhost.strict_keys and exchange.has_patterns:
        for copy in copies:
            check_strict_routing_key(copy)
    return routing


def found_for(
    channel: ServerChannel, route: Route, more_keys: list[str] | None, properties: bytes
) -> Destinations:
    """Return the destinations of a message; `more_keys` are those of the headers CC and BCC.

    Routing may use up the connection's slice.

    Raises: AccessRefused (403); PreconditionFailed (406) for a key or header that is refused.
    """
    if not more_keys and not route.dynamic:
        return route
    vhost = channel.vhost
    exchange, key = route.exchange, route.routing_key
    if more_keys:
        checked = check_copies(channel, exchange, key, more_keys, properties)
        routing = checked or vhost.route(exchange, key, properties, more_keys)
    else:
        routing = vhost.route(exchange, key, properties)
    channel.connection.check_slice()
    return unrefused(routing)


def check_publisher(
    vhost: Vhost, properties: bytes, targets: list[Target], by: Owner | None
) -> None:
    """Check that `by` may publish a message with publisher deduplication to these targets.

    Raises: PreconditionFailed (406) for control characters in the name of its publisher, if that is
    new to one of the targets; AccessRefused (403) as `Vhost.check_publisher`.
    """
    numbered = vhost.numbered(properties)
    if numbered is not None and not is_plain(numbered.publisher):
        publisher = numbered.publisher
        for target in targets:
            if target.publishers is None or target.publishers.known(publisher) is None:
                check_new(publisher.decode("utf-8", "replace"), "publisher")
    vhost.check_publisher(properties, targets, by)


def unrefused(routing: Routing) -> Destinations:
    """Return the destinations of a routing.

    Raises: PreconditionFailed (406) if a header was refused, or routing would take too long.
    """
    if routing.refusal:
        raise PreconditionFailed(routing.refusal, BasicPublish.CLASS_ID, BasicPublish.METHOD_ID)
    return routing
