"""The base of the classic queue, as the parts that it is composed of use it.

`classic.py` implements how messages come and go; its target, its expiry and its retries know this
much of it.
"""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import i64

from leveret.broker.backlog.window import Returned
from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.core.counts import Deaths
from leveret.broker.core.turn import Resumption, Turn
from leveret.broker.values.deduplication import QueuedKeys
from leveret.broker.values.queue_attributes import QueueAttributes


class ConsumedQueue(WaitingQueue):
    """A queue whose messages consumers take and give back."""

    def __init__(
        self,
        turn: Turn,
        queue_id: i64,
        name: str,
        attributes: QueueAttributes,
    ) -> None:
        super().__init__(turn, queue_id, name, attributes)
        #: True if the queue has limits or deadlines, so that there is something to do before each
        #: delivery.
        self.special = False
        #: The keys of the messages in the queue, if only those are duplicates.
        self.queued_keys: QueuedKeys | None = None
        #: What it waits for before it delivers again; None before the first time.
        self.resumption: Resumption | None = None
        #: Operations that give messages back to it in slices.
        self._returning: i64 = 0
        #: Counts its dead messages, by the settings that it was found for.
        self._deaths: Deaths | None = None
        self._deaths_by = self.settings

    def died(self, reason: str) -> None:
        """Count a message that died here."""
        deaths = self._deaths
        settings = self.settings
        if deaths is None or self._deaths_by is not settings:
            strategy = "disabled"
            if settings.dead_letter_exchange is not None:
                strategy = "at_least_once" if settings.at_least_once else "at_most_once"
            deaths = self._deaths = self.turn.counts.deaths_of(self.kind, strategy)
            self._deaths_by = settings
        deaths.note(reason)

    def hold_until(self, group: i64) -> None:
        """Deliver nothing before `group` is synced."""
        if self.resumption is None:
            self.resumption = Resumption(self)
        self.turn.wait(self.resumption, group)

    def is_held(self) -> bool:
        """Return whether it delivers nothing: a sync is awaited, or what comes back in slices."""
        resumption = self.resumption
        return self._returning > 0 or (resumption is not None and resumption.waits_for != 0)

    def begin_returns(self) -> None:
        """Deliver nothing before `end_returns`: what comes back must go before what is here."""
        self._returning += 1

    def end_returns(self) -> None:
        """Deliver again."""
        self._returning -= 1
        self.schedule()

    @abstractmethod
    def note_deadline(self, deadline: i64, sequence: i64) -> None:
        """Set the deadline of a message, unless it is NO_DEADLINE."""

    @abstractmethod
    def make_way(self) -> None:
        """Deliver what can be delivered and expire what is due."""

    @abstractmethod
    def discard(self, sequence: i64, reason: str) -> bool:
        """Dead-letter or drop a waiting message; return False if it does not wait."""

    @abstractmethod
    def put_back(self, item: Returned) -> None:
        """Put a returned message back into its old place."""
