"""Publishes with the flag `immediate`: only queues that can deliver at once take the message.

A queue that would have to store the message does not get it.  If no queue delivers it, the message
is returned with 313.  In RabbitMQ compatibility mode (`compatibility`) the flag is refused with
540, as in RabbitMQ.

Source: AMQP 0-9-1, basic.publish; RabbitMQ before 3.0 for several queues, and for combining it with
`mandatory`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.fan_out import parts_of
from leveret.session.publish.inspect import Inspected, inspect, inspected_message
from leveret.session.publish.returns import ALREADY_TAKEN, NO_ROUTE, return_message
from leveret.session.publish.route import Route, found_for

if TYPE_CHECKING:
    from leveret.broker.queue.target import Target

#: The reply code of a message that no consumer can take now.
NO_CONSUMERS: Final = 313


def accept_immediate(
    channel: ServerChannel, route: Route, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Deliver a message at once, or return it.

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


def deliver_now(
    channel: ServerChannel, message: Message, found: Destinations, mandatory: bool
) -> i64:
    """Put a message into the targets that can deliver it now; return `Vhost.publish`'s outcome."""
    taken, outcome = _hand_out(channel, message, found.targets, found.taps)
    channel.connection.check_slice()
    _conclude(channel, message, found, mandatory, taken, outcome, True)
    return outcome


def _publish(
    channel: ServerChannel, message: Message, found: Destinations, mandatory: bool
) -> Iterator[int]:
    """Put a message into the targets that can deliver it now, in parts, and confirm it."""
    taken: i64 = 0
    outcome: i64 = 0
    known: i64 = KNOWN
    for part in parts_of(message, found.targets):
        # Publish to the taps together with the first part that delivers.
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
    channel: ServerChannel, message: Message, targets: list[Target], taps: Sequence[Target]
) -> tuple[i64, i64]:
    """Put a message into the targets that can deliver it now, and into the taps.

    Return the number of such targets, and the outcome of `Vhost.publish`, or KNOWN if there are
    none.
    """
    taking = [target for target in targets if not target.deleted and target.takes_now()]
    if not taking:
        return 0, KNOWN
    connection = channel.connection
    into = [*taking, *[tap for tap in taps if not tap.deleted]]
    connection.scheduler.spent += len(into)
    outcome = channel.vhost.publish(message, into, connection.as_owner)
    for target in taking:
        # Deliver before the next publish, which may find no consumer with room.
        if not target.deleted:
            target.deliver_one()
    return len(taking), outcome


def _conclude(
    channel: ServerChannel,
    message: Message,
    found: Destinations,
    mandatory: bool,
    taken: i64,
    outcome: i64,
    listens: bool,
) -> bool:
    """Send a basic.return if one is due and the client `listens`; return whether one is due."""
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
