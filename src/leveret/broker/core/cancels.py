"""Consumers whose queue was deleted: who notifies them, and when."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.effects import SyncWaiter

if TYPE_CHECKING:
    from leveret.broker.core.turn import Turn


@mypyc_attr(allow_interpreted_subclasses=True)
class Cancellable:
    """A consumer that the broker can cancel."""

    @abstractmethod
    def cancel(self) -> None:
        """Tell the client that its consumer was cancelled."""


@final
class Cancels(SyncWaiter):
    """Consumers whose queue was deleted, until the deletion is durable.

    The connection that deleted the queue notifies them right after its reply; otherwise they are
    notified when the sync is done.
    """

    def __init__(self, turn: Turn, cancelled: list[Cancellable]) -> None:
        super().__init__()
        self._turn = turn
        self.cancelled = cancelled

    def synced(self, group: i64) -> None:
        """Notify the consumers, unless that was done."""
        self.notify()

    def notify(self) -> None:
        """Notify each consumer, once."""
        cancelled = self.cancelled
        if cancelled:
            self.cancelled = []
            self._turn.start(self._cancel(cancelled))

    def _cancel(self, cancelled: list[Cancellable]) -> Iterator[int]:
        for consumer in cancelled:
            # The end of one that reads many partitions counts its own beside this.
            yield 1
            consumer.cancel()
        # Most are known to nobody else any more.
        self._turn.free(cancelled)
