"""Publishing: the one path that every message takes from bytes to queues.

`take_publishes` handles a publish (method, header, one body frame) in one step when all of it lies
in the input; what does not fit that shape is left to the frame by frame path in `content`, which
ends in `accept` too.

What is staged or committed (`staged.py`), or `immediate`, branches off in `accept`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.queue.queue import is_reached
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, NO_CONTENT, TX, Channel, TxPublish
from leveret.session.publish.immediate import accept_immediate
from leveret.session.publish.inspect import INSPECTED, INSPECTED_LOW, addressed, inspect
from leveret.session.publish.route import (
    ALREADY_TAKEN,
    check_publisher,
    give_back,
    queues_of,
    resolve,
    unrefused,
)
from leveret.session.publish.staged import accept_special
from leveret.wire.properties import skim_properties

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection

PERSISTENT: Final = 2


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
        channel.hold(TxPublish(message, queues, route.mandatory))
        connection.check_publisher(True)
        return
    outcome: i64 = 0
    if queues:
        outcome = vhost.publish(message, queues, connection.as_owner)
    if turn.events is not None:
        turn.events.published(vhost, message, len(queues))
    if route.mandatory:
        if not is_reached(queues):
            give_back(channel, message)
        elif outcome & KNOWN and connection.known_notify:
            give_back(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
    if channel.mode == CONFIRM:
        channel.count_publish(outcome)
    connection.check_publisher(outcome & RECORDED != 0)
