"""Forgetting sinks at somebody's wish, slice after slice."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.task import WaitedWork
from leveret.broker.staging.claims import Claims
from leveret.broker.staging.sinks import Sinks
from leveret.limits import STEPS_PER_SLICE

#: What it costs in steps to forget a sink with a record.
_FORGOTTEN_STEPS: Final = 5


@final
class Forgetting(WaitedWork):
    """Forgets sinks; one that has committed since, or was given to somebody else, stays."""

    def __init__(self, sinks: Sinks, claims: Claims) -> None:
        super().__init__()
        self._sinks: Final = sinks
        self._left: Final = claims
        claims.begin()

    def step(self, steps: i64) -> bool:
        """Forget some of them."""
        sinks = self._sinks
        turn = sinks.turn
        turn.changes += 1
        last = turn.steps + steps
        while self._left.any():
            if turn.steps >= last:
                return True
            turn.steps += _FORGOTTEN_STEPS
            claim = self._left.take()
            sink = claim.sink
            is_same = claim.holds() and sink.batch == claim.batch
            if is_same and sinks.known(sink.name, sink.destination) is sink:
                sinks.forget_one(sink)
        return False


def forget_sinks(sinks: Sinks, claims: Claims) -> Forgetting:
    """Begin to forget sinks: they may begin anew.

    Raises: PreconditionFailed (406) where one of them has batches that are not released, or is
    being given to another user.
    """
    claims.check_released()
    claims.check_given()
    forgetting = Forgetting(sinks, claims)
    # What came before it in this turn may have looked at many sinks.
    sinks.turn.begin(forgetting, STEPS_PER_SLICE // 4)
    return forgetting
