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

from leveret.broker.exchange import Exchange
from leveret.broker.queue import Queue
from leveret.errors import (
    AccessRefused,
    FrameError,
    NotImplementedFault,
    PreconditionFailed,
    SyntaxFault,
)
from leveret.limits import ROUTES_CACHED_MAX, TX_BYTES_MAX, TX_MESSAGES_MAX
from leveret.message import Address, Message
from leveret.session.channel import CONFIRM, NO_CONTENT, TX, Channel, TxPublish
from leveret.wire.buffer import read_i32_be, read_i64_be
from leveret.wire.frames import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, write_method
from leveret.wire.methods import BasicReturn
from leveret.wire.properties import skim_properties

if TYPE_CHECKING:
    from leveret.session.connection import Connection

#: basic.publish, as the four bytes at the start of its payload read as one number.
_PUBLISH: Final = 60 << 16 | 40

#: The bytes around a payload: type, channel, size before it and the end octet after it.
_HEAD: Final = 7
_AROUND: Final = 8

#: The fixed part of a content header: class, weight and body size.
_HEADER_FIXED: Final = 12

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
    data = reader.data
    size: i64 = len(data)
    position: i64 = reader.position
    frame_max: i64 = connection.payload_bytes_max
    body_max: i64 = connection.settings.message_bytes_max
    while connection.halted == 0:
        if size - position < 32 or data[position] != FRAME_METHOD:
            return
        if read_i32_be(data, position + 7) != _PUBLISH:
            return
        number: i64 = data[position + 1] << 8 | data[position + 2]
        length: i64 = i64(read_i32_be(data, position + 3))
        header: i64 = position + _AROUND + length
        if length < 4 or length > frame_max or size - header < _AROUND + _HEADER_FIXED + 2:
            return
        header_length: i64 = i64(read_i32_be(data, header + 3))
        body: i64 = header + _AROUND + header_length
        if (
            header_length < _HEADER_FIXED + 2
            or header_length > frame_max
            or body > size
            or data[header - 1] != FRAME_END
            or data[header] != FRAME_HEADER
            or (data[header + 1] << 8 | data[header + 2]) != number
            or read_i32_be(data, header + 7) != 60 << 16
            or data[body - 1] != FRAME_END
        ):
            return
        body_length: i64 = read_i64_be(data, header + 11)
        after: i64 = body
        if body_length != 0:
            after = body + _AROUND + body_length
            if (
                body_length < 0
                or body_length > frame_max
                or body_length > body_max
                or after > size
                or data[body] != FRAME_BODY
                or (data[body + 1] << 8 | data[body + 2]) != number
                or i64(read_i32_be(data, body + 3)) != body_length
                or data[after - 1] != FRAME_END
            ):
                return
        channel = connection.recent
        if channel is None or channel.number != number:
            channel = connection.channels.get(number)
            if channel is None:
                return
            connection.recent = channel
        if channel.closing or channel.content_state != NO_CONTENT:
            return
        properties: i64 = header + _HEAD + _HEADER_FIXED
        mode = skim_properties(data, properties, body - 1)
        connection.at_fault(channel, 60, 40)
        position = after
        reader.position = after
        accept(
            channel,
            data[position_of_arguments(header, length) : header - 1],
            data[properties : body - 1],
            data[body + _HEAD : after - 1] if body_length != 0 else b"",
            mode == PERSISTENT,
        )


def position_of_arguments(header: i64, length: i64) -> i64:
    """Return where a publish's arguments start whose header frame starts at `header`."""
    return header - 1 - length + 4


def accept(
    channel: Channel, arguments: bytes, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Route one message and put it into its queues, its transaction, or nowhere.

    Raises: NotFound (404), AccessRefused (403), NotImplementedFault (540), SyntaxFault (502).
    """
    connection = channel.connection
    route = connection.routes.get(arguments)
    vhost = channel.vhost
    if route is None or route.revision != vhost.revision:
        route = resolve(channel, arguments)
    turn = connection.turn
    message = Message(route.address, properties, body, turn.now_ms, persistent)
    queues = route.queues
    if route.dynamic:
        queues = vhost.route(route.exchange, route.routing_key, properties).queues
    route.exchange.published_in += 1
    connection.published += 1
    if channel.mode == TX:
        _hold(channel, message, queues, route.mandatory)
        connection.check_publisher()
        return
    recorded = False
    if queues:
        recorded = vhost.publish(message, queues)
    elif route.mandatory:
        give_back(channel, message)
    if channel.mode == CONFIRM:
        channel.count_publish(recorded)
    connection.check_publisher()


def _hold(channel: Channel, message: Message, queues: list[Queue], mandatory: bool) -> None:
    """Keep a publish for the commit."""
    channel.tx_bytes += message.size
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
    exchange = vhost.exchange(name)
    if exchange.internal:
        raise AccessRefused(f"cannot publish to internal {vhost.exchange_label(name)}", 60, 40)
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
