"""The index of an exchange that is changed slice after slice.

A binding to a consistent-hash exchange may have 100,000 points on its ring, which take some 15 ms
to make.  It is there from the beginning, for listings and in the journal; its share of the messages
grows until its index is whole, and only then its client has an answer.

Invariant: an exchange that is not deleted and owes something has one of these under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.task import WaitedWork
from leveret.limits import STEPS_PER_SLICE

if TYPE_CHECKING:
    from leveret.broker.core.turn import Turn
    from leveret.broker.topology.exchange import Exchange


@final
class Indexing(WaitedWork):
    """Goes on with the index of one exchange until nothing is owed."""

    def __init__(self, turn: Turn, exchange: Exchange) -> None:
        super().__init__()
        self._turn: Final = turn
        self._exchange: Final = exchange

    def step(self, steps: i64) -> bool:
        """Go on for a slice."""
        exchange = self._exchange
        if exchange.deleted:
            return False
        self._turn.changes += 1
        settle(self._turn, exchange, steps)
        return exchange.owes()

    def ended(self) -> None:
        """Note that nothing is owed."""
        self._exchange.indexing = None
        super().ended()


def begin_indexing(turn: Turn, exchange: Exchange) -> None:
    """Go on with the index of an exchange, at once for a slice, if it owes something."""
    if exchange.indexing is None and exchange.owes():
        indexing = exchange.indexing = Indexing(turn, exchange)
        turn.begin(indexing)


def index_later(turn: Turn, exchange: Exchange) -> None:
    """Go on with the index of an exchange in later turns: one call may change a thousand."""
    if exchange.indexing is None and exchange.owes():
        indexing = exchange.indexing = Indexing(turn, exchange)
        turn.works.append(indexing)


def settle_all(turn: Turn, exchange: Exchange) -> None:
    """Do at once all that the index of an exchange owes: nobody is served yet."""
    while exchange.owes():
        settle(turn, exchange, STEPS_PER_SLICE)


def settle(turn: Turn, exchange: Exchange, steps: i64) -> None:
    """Go on with the index of an exchange, and count that."""
    before = exchange.index_steps()
    exchange.settle_index(steps)
    turn.steps += exchange.index_steps() - before
