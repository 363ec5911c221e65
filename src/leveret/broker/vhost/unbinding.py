"""The end of the bindings of what was deleted, slice after slice.

A queue or an exchange that is deleted takes its bindings with it: a million of them are seconds of
work.  Its name is free at once; a binding of which one end is deleted routes nothing, and is in no
listing.

Invariant: an auto-delete exchange is deleted with its last binding, also in a long chain of them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from mypy_extensions import i64

from leveret.broker.core.turn import Turn
from leveret.broker.scheduler.task import Work
from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange

#: A binding leaves the index of its source, which costs some µs where that is a tree.
STEPS_PER_BINDING: i64 = 4

#: Bindings to a deleted exchange that are looked at in one step.
_LOOKED_AT_PER_STEP: i64 = 32


class BindingOwner:
    """What an end of bindings asks of the exchanges of a vhost."""

    @abstractmethod
    def take_out(self, binding: Binding) -> Exchange | None:
        """Take a binding out of its source; return that where it is unused and was deleted."""

    @abstractmethod
    def forget_destination(self, binding: Binding) -> None:
        """Remove `binding` from the list that its destination keeps."""


@final
class Unbinding(Work):
    """Removes the bindings to deleted destinations, and those of deleted exchanges."""

    def __init__(self, turn: Turn, owner: BindingOwner) -> None:
        self._turn = turn
        self._owner = owner
        #: Bindings to what is deleted.
        self._bindings: list[dict[Binding, None]] = []
        #: Exchanges that are deleted and have bindings.
        self._exchanges: list[Exchange] = []
        self.over = False
        #: The group whose sync a reply must wait for.
        self.group: i64 = turn.reply_group

    def add_bindings(self, bindings: dict[Binding, None]) -> None:
        """Remove bindings to a destination that is deleted."""
        self._bindings.append(bindings)

    def add_exchange(self, exchange: Exchange) -> None:
        """Remove the bindings of an exchange that is deleted, and those to it."""
        self._exchanges.append(exchange)
        bound_from = exchange.bound_from
        exchange.bound_from = {}
        self._turn.steps += len(bound_from) // _LOOKED_AT_PER_STEP
        chosen = [binding for binding in bound_from if binding.source.chooses]
        for binding in chosen:
            del bound_from[binding]
        self._bindings.append(bound_from)
        # The last come first: these sources must choose another one soon.
        self._bindings.append(dict.fromkeys(chosen))

    def step(self, steps: i64) -> bool:
        """Remove some of them."""
        turn = self._turn
        turn.changes += 1
        turn.reply_group = self.group
        last: i64 = turn.steps + steps
        left = self._remove(last) or self._forget(last) or len(self._bindings) > 0
        self.group = turn.reply_group
        return left

    def _remove(self, last: i64) -> bool:
        turn = self._turn
        while self._bindings:
            bindings = self._bindings[-1]
            if not bindings:
                self._bindings.pop()
                continue
            if turn.steps >= last:
                return True
            turn.steps += STEPS_PER_BINDING
            unused = self._owner.take_out(bindings.popitem()[0])
            if unused is not None:
                self.add_exchange(unused)
        return False

    def _forget(self, last: i64) -> bool:
        turn = self._turn
        while self._exchanges:
            exchange = self._exchanges[-1]
            if not exchange.bindings:
                self._exchanges.pop()
                continue
            if turn.steps >= last:
                return True
            turn.steps += STEPS_PER_BINDING
            binding = exchange.bindings.popitem()[1]
            # The index knows its bindings, and they know it: all of them at once would be found
            # to be garbage, which takes some µs for each.
            exchange.remove(binding)
            self._owner.forget_destination(binding)
        return False

    def ended(self) -> None:
        """Note that nothing is left."""
        self.over = True
