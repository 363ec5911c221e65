"""The recent-history exchange: a fanout that sends its last messages to each new binding.

It stores the last `x-recent-history-length` messages, 20 by default, except those with the header
`x-recent-history-no-store` set to true.  When a queue is bound, it receives these messages, the
oldest first.  When an exchange is bound, they are routed from that exchange.

The history is in memory, within the share of all retained messages (`retention.py`).  It is empty
after a restart, as in RabbitMQ 3.10 (4.3 keeps it).  It takes messages as a queue does, so that a
message of a transaction arrives with the commit.  But it is neither a queue of the vhost nor a
destination: a message taken only by the history is unroutable.

Source: RabbitMQ's plugin of that name.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import is_int
from leveret.broker.core import Core
from leveret.broker.exchanges.exchange import Declared, Routing
from leveret.broker.exchanges.fanout import FanoutExchange
from leveret.broker.queue.target import RECORDS_NONE, Target
from leveret.broker.scheduler.retained_share import RetainedShare, Shrinking
from leveret.errors import PreconditionFailed
from leveret.limits import HISTORY_MESSAGES, HISTORY_MESSAGES_MAX, MESSAGE_OVERHEAD_BYTES
from leveret.message import Message


@final
class History(Target, Shrinking):
    """The last messages of one exchange: a tap, which takes all messages routed there."""

    def __init__(self, core: Core, name: str, length: i64) -> None:
        super().__init__(core, name, 0, RECORDS_NONE)
        self.length: i64 = length
        self.messages: deque[Message] = deque()
        self._keeper: Final = RetainedShare(core.memory.retention, self)

    def publish(self, message: Message) -> i64:
        """Store `message`, and drop the oldest messages if there are too many."""
        self.published += 1
        self.messages.append(message)
        self.core.memory.hold(message.size)
        self._keeper.book(_cost(message))
        if len(self.messages) > self.length:
            self._forget_first()
        self.shrink()
        return self.published

    def shrink(self) -> None:
        """Drop the oldest messages while all histories exceed their share of memory."""
        while self.messages and self._keeper.is_over():
            self._forget_first()

    def _forget_first(self) -> None:
        message = self.messages.popleft()
        self.core.memory.release(message.size)
        self._keeper.book(-_cost(message))

    def drop(self) -> None:
        """Drop all messages because the exchange is deleted."""
        self.deleted = True
        while self.messages:
            self._forget_first()
        self._keeper.end()


def _cost(message: Message) -> i64:
    return message.size + MESSAGE_OVERHEAD_BYTES


class RecentHistoryExchange(FanoutExchange):
    """A fanout exchange with a history."""

    length: i64
    history: History | None

    def __init__(self, declared: Declared) -> None:
        """Start without a history.  Raises: PreconditionFailed (406) for an invalid length."""
        super().__init__(declared)
        self.history = None
        length = self.arguments.get("x-recent-history-length", HISTORY_MESSAGES)
        if not is_int(length) or not isinstance(length, int) or length < 1:
            raise PreconditionFailed(
                f"Invalid argument {length}, 'x-recent-history-length' must be a positive integer"
            )
        if length > HISTORY_MESSAGES_MAX:
            raise PreconditionFailed(
                f"'x-recent-history-length' must not be greater than {HISTORY_MESSAGES_MAX}"
            )
        self.length = length

    def equip(self, core: Core) -> None:
        """Create the history."""
        self.history = History(core, self.name, self.length)

    def drop(self) -> None:
        """Drop the history because the exchange is deleted."""
        super().drop()
        if self.history is not None:
            self.history.drop()

    def replayed(self) -> list[Message]:
        """Return the messages to send to a new binding at once, the oldest first."""
        return list(self.history.messages) if self.history is not None else []

    def route(self, routing: Routing) -> None:
        """Match all bindings, and store the message unless its header forbids it."""
        no_store = routing.headers().get("x-recent-history-no-store")
        if self.history is not None and no_store is not True:
            routing.take_tap(self.history)
        super().route(routing)
