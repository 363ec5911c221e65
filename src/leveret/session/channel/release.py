"""Settling many deliveries, and giving back what a channel held: slice after slice.

What goes back to a queue in several slices is delivered by it when all of it is back, so that it
comes in its old order.

Invariants: a delivery is settled once; a queue that is held is released when the operation ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.limits import LETTERS_WAITING_MAX
from leveret.session.channel.channel import Channel
from leveret.session.channel.unacked import REJECT, REQUEUE
from leveret.session.client_session import ClientWork

if TYPE_CHECKING:
    from leveret.broker.queue.consumer import Consumer, Source
    from leveret.session.channel.unacked import Unacked
    from leveret.wire.method import Method

#: Deliveries, and bytes of their messages, that are settled between two looks at the steps that are
#: left: an ack lets go of what it acks.
SETTLED_AT_ONCE: Final = 512
SETTLED_BYTES: Final = 1 << 25


@final
class HeldQueues:
    """The queues that deliver nothing while messages come back to them."""

    def __init__(self) -> None:
        self._queues: dict[Source, None] = {}

    def hold(self, returned: list[Unacked]) -> None:
        """Hold the queues of deliveries that are given back."""
        last: Source | None = None
        for unacked in returned:
            queue = unacked.queue
            if queue is last:
                continue
            last = queue
            if queue not in self._queues:
                self._queues[queue] = None
                queue.begin_returns()

    def release(self) -> bool:
        """Let one of them deliver again; return whether there was one."""
        if not self._queues:
            return False
        self._queues.popitem()[0].end_returns()
        return True


@final
class Settling(ClientWork):
    """Settles the deliveries of a channel up to a tag; `answer` is the reply, if there is one."""

    def __init__(
        self, channel: Channel, tag: i64, outcome: i64, begun: list[Unacked], answer: Method | None
    ) -> None:
        """`begun` are those that the caller has settled."""
        super().__init__(channel.connection)
        self._channel = channel
        self._tag: i64 = tag
        self._outcome: i64 = outcome
        self._answer = answer
        self._held = HeldQueues()
        if outcome == REQUEUE:
            self._held.hold(begun)

    def advance(self, last: i64) -> bool:
        """Settle the next ones."""
        channel = self._channel
        turn = self.session.turn
        unacked = channel.unacked
        while unacked.has_up_to(self._tag):
            if turn.steps >= last:
                return True
            if self._outcome == REJECT and turn.waiting_letters() > LETTERS_WAITING_MAX:
                return True
            settled = unacked.take_up_to(self._tag, SETTLED_AT_ONCE, SETTLED_BYTES)
            turn.steps += len(settled) + 1
            if self._outcome == REQUEUE:
                self._held.hold(settled)
            channel.settle(settled, self._outcome)
        while self._held.release():
            turn.steps += 1
            if turn.steps >= last:
                return True
        return False

    def reply(self) -> None:
        """Answer the client."""
        answer = self._answer
        if answer is not None and self.session.awaits_reply() and not self._channel.closing:
            self._channel.connection.send(self._channel.number, answer)


@final
class ChannelRelease:
    """What a channel that ends gives back: its consumers end, and its deliveries are requeued."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._turn = channel.connection.turn
        self._consumers: list[Consumer] = channel.end()
        self._left: i64 = len(self._consumers)
        self._unused: i64 = 0
        self._held = HeldQueues()

    def advance(self, last: i64) -> bool:
        """Go on until `Turn.steps` is at `last`; return whether some is left."""
        # Consumers go first, so that nothing is handed to a channel that ends.
        return self._unsubscribe(last) or self._give_back(last) or self._end_unused(last)

    def _unsubscribe(self, last: i64) -> bool:
        # The newest first: it is the last in the list of its queue.
        while self._left > 0:
            if self._turn.steps >= last:
                return True
            self._left -= 1
            consumer = self._consumers[self._left]
            queue = consumer.queue
            self._turn.steps += 1
            # One that is not there any more was ended meanwhile.
            if self._channel.take_consumer(consumer.tag) is consumer and not queue.deleted:
                queue.unsubscribe(consumer)
        return False

    def _give_back(self, last: i64) -> bool:
        channel = self._channel
        turn = self._turn
        channel.end_replies()
        while True:
            if turn.steps >= last:
                return True
            settled = channel.unacked.take_up_to(
                channel.delivery_tag, SETTLED_AT_ONCE, SETTLED_BYTES
            )
            if not settled:
                break
            turn.steps += len(settled) + 1
            self._held.hold(settled)
            channel.requeue(settled, True)
        while self._held.release():
            turn.steps += 1
            if turn.steps >= last:
                return True
        return False

    def _end_unused(self, last: i64) -> bool:
        while self._unused < len(self._consumers):
            if self._turn.steps >= last:
                return True
            self._turn.steps += 1
            self._channel.vhost.queues.end_unused(self._consumers[self._unused].queue)
            self._unused += 1
        return False


@final
class ChannelClosing(ClientWork):
    """Releases what a channel held, and then sends the broker's channel.close."""

    def __init__(self, channel: Channel, close: Method) -> None:
        super().__init__(channel.connection)
        self._channel = channel
        self._close = close
        self._release = ChannelRelease(channel)

    def advance(self, last: i64) -> bool:
        """Release more of it."""
        return self._release.advance(last)

    def reply(self) -> None:
        """Tell the client."""
        if self.session.awaits_reply():
            self._channel.connection.send(self._channel.number, self._close)
