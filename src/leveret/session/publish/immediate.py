"""Publishes with the flag `immediate`: a queue takes the message if it hands it out at once.

A queue that would have to keep it does without it, and the message comes back with 313 where no
queue handed it out; to RabbitMQ's clients the flag is 540 (`compatibility`), as it is there.

Source: AMQP 0-9-1, basic.publish; RabbitMQ before 3.0 for several queues, and for `mandatory`
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.fan_out import parts_of
from leveret.session.publish.inspect import Inspected, inspect, inspected_message
from leveret.session.publish.route import (
    ALREADY_TAKEN,
    NO_ROUTE,
    Route,
    found_for,
    return_message,
)

if TYPE_CHECKING:
    from leveret.broker.queue.target import Target

#: What a message comes back with that no consumer can take now.
NO_CONSUMERS: Final = 313


def accept_immediate(
    channel: Channel, route: Route, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Hand a message out, or give it back.

    Raises: AccessRefused (403), PreconditionFailed (406).
    """
    connection = channel.connection
    inspected = inspect(channel, properties) or Inspected(properties, [], False)
    found = found_for(channel, route, inspected.more_keys, inspected.properties)
    message = inspected_message(channel, route, inspected, found.targets, body, persistent)
    if channel.mode == TX:
        channel.transaction.hold(TxPublish(message, found, route.mandatory, None, None, True))
        connection.check_publisher(True)
        return
    if channel.mode == CONFIRM:
        channel.confirms.begin_parts()
    connection.start(_publish(channel, message, found, route.mandatory))
    connection.check_slice()


def deliver_now(channel: Channel, message: Message, found: Destinations, mandatory: bool) -> i64:
    """Put a message into those targets that hand it out now; return what `publish` does."""
    taken, outcome = _hand_out(channel, message, found.targets, found.taps)
    channel.connection.check_slice()
    _conclude(channel, message, found, mandatory, taken, outcome, True)
    return outcome


def _publish(
    channel: Channel, message: Message, found: Destinations, mandatory: bool
) -> Iterator[int]:
    """Have those of a message's targets hand it out that can do so now."""
    taken: i64 = 0
    outcome: i64 = 0
    known: i64 = KNOWN
    for part in parts_of(message, found.targets):
        # The first that hand it out have it tapped.
        some, told = _hand_out(channel, message, part, found.taps if taken == 0 else ())
        taken += some
        known &= told
        outcome |= told & ~KNOWN
        yield len(part)
    if taken > 0:
        outcome |= known
    listens = channel.awaits_reply()
    returned = _conclude(channel, message, found, mandatory, taken, outcome, listens)
    if channel.mode == CONFIRM:
        channel.confirms.end_parts(outcome, returned)
    if listens:
        channel.connection.check_publisher(outcome & RECORDED != 0)


def _hand_out(
    channel: Channel, message: Message, targets: list[Target], taps: Sequence[Target]
) -> tuple[i64, i64]:
    """Put a message into those of the targets that hand it out now, and into the taps.

    Returns how many they are, and what `publish` does; that is KNOWN where there are none.
    """
    taking = [target for target in targets if not target.deleted and target.takes_now()]
    if not taking:
        return 0, KNOWN
    connection = channel.connection
    into = [*taking, *[tap for tap in taps if not tap.deleted]]
    connection.scheduler.spent += len(into)
    outcome = channel.vhost.publish(message, into, connection.as_owner)
    for target in taking:
        # Before the next publish, which may find no room with a consumer any more.
        if not target.deleted:
            target.deliver_one()
    return len(taking), outcome


def _conclude(
    channel: Channel,
    message: Message,
    found: Destinations,
    mandatory: bool,
    taken: i64,
    outcome: i64,
    listens: bool,
) -> bool:
    """Give a message back that nobody took, where the client `listens`; return whether it is so."""
    core = channel.connection.core
    if core.events is not None:
        core.events.published(channel.vhost.name, message, taken, found.targets)
    code: int = 0
    text = ""
    if mandatory and not found.reached():
        code, text = NO_ROUTE, "NO_ROUTE"
    elif taken == 0:
        code, text = NO_CONSUMERS, "NO_CONSUMERS"
    elif mandatory and outcome & KNOWN and channel.connection.capabilities.already_taken:
        code, text = ALREADY_TAKEN, "ALREADY_TAKEN"
    if code and listens:
        return_message(channel, message, code, text)
    return code != 0
