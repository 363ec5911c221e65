"""Where a publish goes: what its arguments were resolved to, and what is returned."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.staging.commit import COMMIT_KEY
from leveret.broker.staging.staging import Staging, staging_of
from leveret.broker.topology.exchange import Exchange, Routing
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import (
    AccessRefused,
    FrameError,
    NotImplementedFault,
    PreconditionFailed,
)
from leveret.message import Address, Message
from leveret.names import Name, check_new, cleaned, is_plain
from leveret.routing.keys import check_strict_routing_key
from leveret.session.channel.channel import Channel
from leveret.session.publish.topic_access import check_reached
from leveret.wire.content.publish import PublishArguments
from leveret.wire.methods import BasicPublish, BasicReturn

#: What a mandatory message comes back with that no queue took (behaviour 24).
NO_ROUTE: Final = 312

#: What a mandatory message comes back with whose publisher's number all its queues had taken, to
#: clients that ask for it (capability `leveret.already_taken`); it is confirmed all the same.
ALREADY_TAKEN: Final = 208


@final
class Route:
    """What the arguments of a publish were resolved to."""

    def __init__(
        self,
        exchange: Exchange,
        address: Address,
        routing_key: str,
        queues: list[Queue],
        dynamic: bool,
        mandatory: bool,
        revision: i64,
    ) -> None:
        self.exchange: Final = exchange
        self.address: Final = address
        self.routing_key: Final = routing_key
        self.queues: Final = queues
        #: True when headers decide: each message is routed on its own.
        self.dynamic: Final = dynamic
        self.mandatory: Final = mandatory
        self.revision: i64 = revision
        #: The staging queue that it leads to, by the default exchange.
        self.staging: Staging | None = None
        #: True for what is no message but a commit.
        self.commits = False
        #: True for either, and for what a consumer is to take at once or not at all.
        self.special = False
        self.immediate = False
        if not exchange.name:
            self._look()

    def _look(self) -> None:
        """Note what is to be staged or committed: only the default exchange leads there."""
        self.commits = self.routing_key == COMMIT_KEY
        for queue in self.queues:
            if isinstance(queue, ClassicQueue):
                self.staging = staging_of(queue)
        self.special = self.commits or self.staging is not None

    def make_immediate(self) -> None:
        """Note the flag `immediate`; what is staged or committed knows none."""
        self.immediate = not self.special
        self.special = True


def resolve(channel: Channel, raw: bytes) -> Route:
    """Resolve the arguments of a publish.

    Raises: SyntaxFault (502), FrameError (501) for a name that is not UTF-8; NotImplementedFault
    (540) for `immediate` to RabbitMQ's clients; NotFound (404), AccessRefused (403) and
    PreconditionFailed (406) as `writable`.
    """
    arguments = PublishArguments(raw)
    if arguments.immediate and channel.connection.settings.compatible:
        raise NotImplementedFault("immediate=true", BasicPublish.CLASS_ID, BasicPublish.METHOD_ID)
    name, key = decoded(channel.vhost, arguments.exchange, arguments.routing_key)
    exchange = writable(channel, name, key)
    routing = channel.vhost.route(exchange, key, b"")
    route = Route(
        exchange,
        Address(exchange.name_bytes, arguments.routing_key),
        key,
        routing.queues,
        routing.dynamic,
        arguments.mandatory,
        channel.vhost.revision,
    )
    if arguments.immediate:
        route.make_immediate()
    return route


def decoded(vhost: Vhost, exchange: bytes, routing_key: bytes) -> tuple[Name, str]:
    """Return an exchange's name, cleaned, and a routing key.

    Raises: FrameError (501) for one that is not UTF-8.
    """
    try:
        text = exchange.decode("utf-8")
        key = routing_key.decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError(
            "a name is not UTF-8", BasicPublish.CLASS_ID, BasicPublish.METHOD_ID
        ) from None
    # The name of an exchange that exists is clean, and finding it costs less than looking for line
    # ends in each publish with a new routing key.
    known = vhost.exchanges.by_name.get(text)
    return known.name if known is not None else cleaned(text), key


def writable(channel: Channel, name: Name, key: str) -> Exchange:
    """Return an exchange that the user may publish to with that routing key.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406) for a key that is not
    strict where it must be.
    """
    vhost = channel.vhost
    access = channel.connection.access
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
        access.write_topic(name, key)
    return exchange


def check_copies(
    channel: Channel, exchange: Exchange, key: str, copies: list[str], properties: bytes
) -> None:
    """Check that the user may publish with the keys of CC and BCC too.

    Raises: AccessRefused (403); PreconditionFailed (406) for one that is not strict.
    """
    check_reached(channel, exchange, key, copies, properties)
    if channel.vhost.strict_keys and exchange.has_patterns:
        for copy in copies:
            check_strict_routing_key(copy)


def queues_of(
    channel: Channel, route: Route, more_keys: list[str], properties: bytes
) -> list[Queue]:
    """Return where a message goes that has `more_keys` in the headers CC and BCC.

    Raises: AccessRefused (403); PreconditionFailed (406) for a key or header that is refused.
    """
    vhost = channel.vhost
    if more_keys:
        check_copies(channel, route.exchange, route.routing_key, more_keys, properties)
        return unrefused(
            vhost.route_copies(route.exchange, route.routing_key, more_keys, properties)
        )
    if route.dynamic:
        return unrefused(vhost.route(route.exchange, route.routing_key, properties))
    return route.queues


def check_publisher(
    channel: Channel, route: Route, publisher: bytes, more_keys: list[str], properties: bytes
) -> None:
    """Refuse control characters in the name of a publisher that one of its queues does not know.

    Raises: PreconditionFailed (406).
    """
    if is_plain(publisher):
        return
    for queue in queues_of(channel, route, more_keys, properties):
        if queue.publishers is None or queue.publishers.known(publisher) is None:
            check_new(publisher.decode("utf-8", "replace"), "publisher")


def unrefused(routing: Routing) -> list[Queue]:
    """Return where a message goes.  Raises: PreconditionFailed (406) where a header is refused."""
    if routing.refusal:
        raise PreconditionFailed(routing.refusal, BasicPublish.CLASS_ID, BasicPublish.METHOD_ID)
    return routing.queues


def return_message(
    channel: Channel, message: Message, code: int = NO_ROUTE, text: str = "NO_ROUTE"
) -> None:
    """Write a basic.return with its content."""
    connection = channel.connection
    address = message.address
    connection.send(
        channel.number,
        BasicReturn(
            code, text, address.exchange.decode("utf-8"), address.routing_key.decode("utf-8")
        ),
    )
    connection.output.write_content(channel.number, message.properties, message.body)
