"""Publishing: the one path that every message takes from bytes to queues.

`take_publishes` handles a publish (method, header, one body frame) in one step when all of it lies
in the input; what does not fit that shape is left to the frame by frame path in `content`, which
ends in `accept` too.

The arguments of a publish are the key of a memory of resolved routes, one per connection: the
same exchange and routing key cost one look-up.  A declare, bind or delete anywhere in the vhost
makes the remembered routes stale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.exchange import Exchange, Routing
from leveret.broker.queue import Queue
from leveret.broker.vhost import RECORDED
from leveret.errors import (
    AccessRefused,
    FrameError,
    NotImplementedFault,
    PreconditionFailed,
    SyntaxFault,
)
from leveret.limits import ROUTES_CACHED_MAX, TX_BYTES_MAX, TX_MESSAGES_MAX
from leveret.message import Address, Message
from leveret.routing.keys import check_strict_routing_key
from leveret.session.channel import CONFIRM, NO_CONTENT, TX, Channel, TxPublish
from leveret.session.inspect import INSPECTED, INSPECTED_LOW, inspect
from leveret.wire.frames import write_method
from leveret.wire.methods import BasicReturn
from leveret.wire.properties import skim_properties

if TYPE_CHECKING:
    from leveret.session.connection import Connection

PERSISTENT: Final = 2


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


def take_publishes(connection: Connection) -> None:
    """Handle the publishes that lie whole at the front of the input.

    Stops at anything else, and when the connection is halted.
    """
    reader = connection.reader
    shape = connection.shape
    data = reader.data
    size: i64 = len(data)
    while connection.halted == 0 and shape.find(data, size, reader.position):
        channel = connection.recent
        if channel is None or channel.number != shape.channel:
            channel = connection.channels.get(shape.channel)
            if channel is None:
                return
            connection.recent = channel
        if channel.closing or channel.content_state != NO_CONTENT:
            return
        connection.at_fault(channel, 60, 40)
        mode = skim_properties(data, shape.properties, shape.properties_end)
        reader.position = shape.after
        accept(
            channel,
            data[shape.arguments : shape.arguments_end],
            data[shape.properties : shape.properties_end],
            data[shape.body : shape.body_end],
            mode == PERSISTENT,
        )


def accept(
    channel: Channel, arguments: bytes, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Route one message and put it into its queues, its transaction, or nowhere.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406), NotImplementedFault
    (540), SyntaxFault (502).
    """
    connection = channel.connection
    route = connection.routes.get(arguments)
    vhost = channel.vhost
    if route is None or route.revision != vhost.revision:
        route = resolve(channel, arguments)
    more_keys: list[str] | None = None
    numbered = False
    if properties[0] & INSPECTED or properties[1] & INSPECTED_LOW:
        inspected = inspect(channel, properties)
        if inspected is not None:
            properties = inspected.properties
            more_keys = inspected.more_keys
            numbered = inspected.numbered
    turn = connection.turn
    message = Message(route.address, properties, body, turn.now_ms, persistent, False, numbered)
    queues = route.queues
    if more_keys:
        queues = _route_copies(channel, route, more_keys, properties)
    elif route.dynamic:
        queues = _unrefused(vhost.route(route.exchange, route.routing_key, properties))
    route.exchange.published_in += 1
    connection.published += 1
    if channel.mode == TX:
        _hold(channel, message, queues, route.mandatory)
        connection.check_publisher(True)
        return
    outcome: i64 = 0
    if queues:
        outcome = vhost.publish(message, queues)
    if turn.events is not None:
        turn.events.published(vhost, message, len(queues))
    if route.mandatory and not reached(queues):
        give_back(channel, message)
    if channel.mode == CONFIRM:
        channel.count_publish(outcome)
    connection.check_publisher(outcome & RECORDED != 0)


def reached(queues: list[Queue]) -> bool:
    """Tell whether a message has a destination: a tap is none."""
    for queue in queues:
        if not queue.is_tap:
            return True
    return False


def _route_copies(
    channel: Channel, route: Route, more_keys: list[str], properties: bytes
) -> list[Queue]:
    """Return the queues of a message that has the headers CC or BCC."""
    vhost = channel.vhost
    exchange = route.exchange
    access = channel.connection.access
    for key in more_keys:
        access.write_topic(exchange.kind, exchange.name, key)
    if vhost.strict_keys and exchange.has_patterns:
        for key in more_keys:
            check_strict_routing_key(key)
    return _unrefused(vhost.route_copies(exchange, route.routing_key, more_keys, properties))


def _unrefused(routing: Routing) -> list[Queue]:
    """Return where a message goes.  Raises: PreconditionFailed (406) where a header is refused."""
    if routing.refusal:
        raise PreconditionFailed(routing.refusal, 60, 40)
    return routing.queues


def _hold(channel: Channel, message: Message, queues: list[Queue], mandatory: bool) -> None:
    """Keep a publish for the commit."""
    channel.tx_bytes += message.size
    channel.assemble(message.size)
    if len(channel.tx_publishes) >= TX_MESSAGES_MAX or channel.tx_bytes > TX_BYTES_MAX:
        raise PreconditionFailed(
            f"a transaction holds at most {TX_MESSAGES_MAX} messages and {TX_BYTES_MAX} bytes"
        )
    channel.tx_publishes.append(TxPublish(message, queues, mandatory))


def give_back(channel: Channel, message: Message) -> None:
    """Write a basic.return for a mandatory message that no queue took (behaviour 24)."""
    address = message.address
    write_method(
        channel.connection.out,
        channel.number,
        BasicReturn(
            312, "NO_ROUTE", address.exchange.decode("utf-8"), address.routing_key.decode("utf-8")
        ),
    )
    channel.write_content(message.properties, message.body)
    channel.connection.wake()


def resolve(channel: Channel, arguments: bytes) -> Route:
    """Resolve the arguments of a publish and remember the result."""
    size: i64 = len(arguments)
    exchange_end: i64 = 3 + arguments[2] if size > 2 else 0
    if size < 5 or exchange_end + 2 > size:
        raise SyntaxFault("the arguments of basic.publish end early", 60, 40)
    key_end: i64 = exchange_end + 1 + arguments[exchange_end]
    if key_end + 1 != size:
        raise SyntaxFault("the arguments of basic.publish have the wrong length", 60, 40)
    bits: i64 = arguments[key_end]
    if bits & 2:
        raise NotImplementedFault("immediate=true", 60, 40)
    exchange_name = arguments[3:exchange_end]
    routing_key = arguments[exchange_end + 1 : key_end]
    try:
        name = exchange_name.decode("utf-8")
        key = routing_key.decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError("a name is not UTF-8", 60, 40) from None
    vhost = channel.vhost
    access = channel.connection.access
    access.write("exchange", name)
    exchange = vhost.exchange(name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal {vhost.exchange_label(name)}", 60, 40)
    if vhost.strict_keys and exchange.has_patterns:
        check_strict_routing_key(key)
    access.write_topic(exchange.kind, name, key)
    routing = vhost.route(exchange, key, b"")
    route = Route(
        exchange,
        Address(exchange_name, routing_key),
        key,
        routing.queues,
        routing.dynamic,
        bits & 1 == 1,
        vhost.revision,
    )
    routes = channel.connection.routes
    if len(routes) >= ROUTES_CACHED_MAX:
        routes.clear()
    routes[arguments] = route
    return route
