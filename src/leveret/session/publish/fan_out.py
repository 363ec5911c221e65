"""The publish of one message to thousands of queues, some of them in each slice.

Each part is a publish to its queues as any other, with a record of its own in the journal: no
exchange promises that a message comes to all queues at once.  The connection goes on, and the
publisher has its confirm, when the last queue has the message.

Invariant: the parts are so few that their records hold no more than `FAN_OUT_RECORDED_BYTES` beside
one copy of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.vhost.vhost import KNOWN, RECORDED
from leveret.limits import FAN_OUT_COPIES, FAN_OUT_RECORDED_BYTES
from leveret.session.channel.channel import CONFIRM, Channel
from leveret.session.client_session import ClientSession, ClientWork
from leveret.session.publish.route import ALREADY_TAKEN, return_message

if TYPE_CHECKING:
    from leveret.broker.queue.target import Destinations, Target
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message


class Spreading(ClientWork):
    """One message on its way to its queues, from a client of any protocol."""

    def __init__(
        self, session: ClientSession, vhost: Vhost, message: Message, targets: list[Target]
    ) -> None:
        super().__init__(session)
        self.vhost: Final = vhost
        self.message: Final = message
        self._targets: Final = targets
        self._owner = session.as_owner
        #: How many targets are done, and how many are a part.
        self._done: i64 = 0
        parts: i64 = max(1, FAN_OUT_RECORDED_BYTES // max(1, message.size))
        self._part: i64 = max(FAN_OUT_COPIES, len(targets) // parts + 1)
        #: What `Vhost.publish` said of all parts, but KNOWN.
        self.outcome: i64 = 0
        #: True while all queues had taken the message before.
        self.known = True

    def advance(self, last: i64) -> bool:
        """Publish to more of them."""
        targets = self._targets
        turn = self.session.turn
        count: i64 = len(targets)
        while self._done < count:
            if turn.steps >= last:
                return True
            part = targets[self._done : self._done + self._part]
            self._done += len(part)
            turn.steps += len(part)
            # Those that were deleted between two parts have it no more, as if it had come before.
            self.publish_to([target for target in part if not target.deleted])
        return False

    def publish_to(self, part: list[Target]) -> None:
        """Publish to one part."""
        outcome = self.vhost.publish(self.message, part, self._owner)
        self.outcome |= outcome
        if outcome & KNOWN == 0:
            self.known = False


@final
class FanOut(Spreading):
    """One message of AMQP on its way to its queues."""

    def __init__(
        self, channel: Channel, message: Message, found: Destinations, mandatory: bool
    ) -> None:
        super().__init__(channel.connection, channel.vhost, message, found.targets)
        self._channel = channel
        self._found = found
        self._mandatory = mandatory

    def reply(self) -> None:
        """Confirm the message, or return it, if anybody listens."""
        channel = self._channel
        connection = channel.connection
        message = self.message
        outcome = self.outcome
        turn = connection.turn
        if turn.events is not None:
            targets = self._found.targets
            turn.events.published(channel.vhost.name, message, len(targets), targets)
        returned = self._mandatory and not self._found.reached()
        if not connection.awaits_reply() or channel.closing:
            if channel.mode == CONFIRM:
                channel.confirms.end_parts(outcome, returned)
            return
        if self._mandatory:
            if returned:
                return_message(channel, message)
            elif self.known and connection.capabilities.already_taken:
                return_message(channel, message, ALREADY_TAKEN, "ALREADY_TAKEN")
        if channel.mode == CONFIRM:
            channel.confirms.end_parts(outcome, returned)
        connection.check_publisher(outcome & RECORDED != 0)


def fan_out(channel: Channel, message: Message, found: Destinations, mandatory: bool) -> None:
    """Begin to publish a message to thousands of queues; its connection waits for the end."""
    connection = channel.connection
    if channel.mode == CONFIRM:
        channel.confirms.begin_parts()
    connection.perform(FanOut(channel, message, found, mandatory))
    connection.check_slice()
