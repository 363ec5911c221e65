"""Publishes with the flag `immediate`: a queue takes the message if it hands it out at once.

A queue that would have to keep it does without it, and the message comes back with 313 where no
queue handed it out; to RabbitMQ's clients the flag is 540 (`compatibility`), as it is there.

Source: AMQP 0-9-1, basic.publish; RabbitMQ before 3.0 for several queues, and for `mandatory`
beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.limits import FAN_OUT_COPIES
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.fan_out import Spreading
from leveret.session.publish.inspect import addressed, inspect
from leveret.session.publish.route import (
    ALREADY_TAKEN,
    NO_ROUTE,
    Route,
    check_publisher,
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
    found = found_for(channel, route, more_keys, properties)
    message = Message(address, properties, body, turn.now_ms, persistent, False, numbered)
    if numbered:
        check_publisher(channel.vhost, properties, found.targets, connection.access.owner)
    route.exchange.published_in += 1
    connection.count_published(len(body))
    if channel.mode == TX:
        channel.transaction.hold(TxPublish(message, found, route.mandatory, None, None, True))
        connection.check_publisher(True)
        return
    if len(found.targets) > FAN_OUT_COPIES:
        if channel.mode == CONFIRM:
            channel.confirms.begin_parts()
        connection.perform(ImmediateFanOut(channel, message, found, route.mandatory))
        connection.check_slice()
        return
    outcome = deliver_now(channel, message, found, route.mandatory)
    if channel.mode == CONFIRM:
        channel.confirms.count(outcome)
    connection.check_publisher(outcome & RECORDED != 0)


@final
class ImmediateFanOut(Spreading):
    """Asks thousands of queues whether they hand a message out at once, some in each slice."""

    def __init__(
        self, channel: Channel, message: Message, found: Destinations, mandatory: bool
    ) -> None:
        super().__init__(channel.connection, channel.vhost, message, found.targets)
        self._channel = channel
        self._found = found
        self._mandatory = mandatory
        #: How many queues have handed it out.
        self._taken: i64 = 0

    def publish_to(self, part: list[Target]) -> None:
        """Have those hand it out that can; the first of them have it tapped."""
        taking = [target for target in part if target.takes_now()]
        if not taking:
            return
        self.session.turn.steps += len(taking)
        taps = self._found.taps if self._taken == 0 else ()
        self._taken += len(taking)
        super().publish_to([*taking, *[tap for tap in taps if not tap.deleted]])
        for target in taking:
            if not target.deleted:
                target.deliver_one()

    def reply(self) -> None:
        """Confirm the message, or return it, if anybody listens."""
        channel = self._channel
        connection = channel.connection
        outcome = self.outcome
        if self.known and self._taken > 0:
            outcome |= KNOWN
        listens = connection.awaits_reply() and not channel.closing
        returned = _conclude(
            channel, self.message, self._found, self._mandatory, self._taken, outcome, listens
        )
        if channel.mode == CONFIRM:
            channel.confirms.end_parts(outcome, returned)
        if listens:
            connection.check_publisher(outcome & RECORDED != 0)


def deliver_now(channel: Channel, message: Message, found: Destinations, mandatory: bool) -> i64:
    """Put a message into those targets that hand it out now; return what `publish` does."""
    vhost = channel.vhost
    taking = [target for target in found.targets if target.takes_now()]
    outcome: i64 = 0
    if taking:
        targets = [*taking, *found.taps]
        outcome = vhost.publish(message, targets, channel.connection.access.owner)
        channel.connection.spend(len(targets))
        for target in taking:
            # Before the next publish, which may find no room with a consumer any more.
            target.deliver_one()
    _conclude(channel, message, found, mandatory, len(taking), outcome, True)
    return outcome


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
    turn = channel.connection.turn
    if turn.events is not None:
        turn.events.published(channel.vhost.name, message, taken, found.targets)
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
