"""Publishes with the flag `immediate`: a queue takes the message if it hands it out at once.

A queue that would have to keep it does without it, and the message comes back with 313 where no
queue handed it out; to RabbitMQ's clients the flag is 540 (`compatibility`), as it is there.

Source: AMQP 0-9-1, basic.publish; RabbitMQ before 3.0 for several queues, and for `mandatory`
beside it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.queue.queue import Queue, is_reached
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.inspect import addressed, inspect
from leveret.session.publish.route import (
    ALREADY_TAKEN,
    Route,
    check_publisher,
    queues_of,
    return_message,
)

#: What a message comes back with that no consumer can take now.
NO_CONSUMERS: Final = 313


def accept_immediate(
    channel: Channel, route: Route, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Hand a message out, or give it back.

    Raises: AccessRefused (403), PreconditionFailed (406).
    """
    connection = channel.connection
    turn = connection.turn
    more_keys: list[str] = []
    numbered = False
    address = route.address
    inspected = inspect(channel, properties)
    if inspected is not None:
        properties = inspected.properties
        more_keys = inspected.more_keys
        numbered = inspected.numbered
        address = addressed(address, inspected)
        if numbered:
            check_publisher(channel, route, inspected.publisher, more_keys, properties)
    queues = queues_of(channel, route, more_keys, properties)
    message = Message(address, properties, body, turn.now_ms, persistent, False, numbered)
    if numbered:
        channel.vhost.check_publisher(properties, queues, connection.access.owner)
    route.exchange.published_in += 1
    connection.count_published()
    if channel.mode == TX:
        channel.transaction.hold(TxPublish(message, queues, route.mandatory, None, None, True))
        connection.check_publisher(True)
        return
    outcome = deliver_now(channel, message, queues, route.mandatory)
    if channel.mode == CONFIRM:
        channel.confirms.count(outcome)
    connection.check_publisher(outcome & RECORDED != 0)


def deliver_now(channel: Channel, message: Message, queues: list[Queue], mandatory: bool) -> i64:
    """Put a message into those of `queues` that hand it out now; return what `publish` does."""
    vhost = channel.vhost
    turn = channel.connection.turn
    taking = [queue for queue in queues if queue.takes_now()]
    outcome: i64 = 0
    if taking:
        taps = [queue for queue in queues if queue.is_tap]
        outcome = vhost.publish(message, taking + taps, channel.connection.access.owner)
        for queue in taking:
            # Before the next publish, which may find no room with a consumer any more.
            queue.dispatch(1)
    if turn.events is not None:
        turn.events.published(vhost.name, message, len(taking))
    if mandatory and not is_reached(queues):
        return_message(channel, message)
    elif not taking:
        return_message(channel, message, NO_CONSUMERS, "NO_CONSUMERS")
    elif mandatory and outcome & KNOWN and channel.connection.capabilities.already_taken:
        return_message(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
    return outcome
