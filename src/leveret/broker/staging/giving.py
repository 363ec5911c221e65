"""Giving sinks to another user, with what their owner staged for them, slice after slice.

What an owner only offers is noted in the same slices.

A sink with few staging queues is given at once, by one record.  Of one with many a record first
says whom it is being given to; then the queues go, some by one record, and the sink itself comes
last: until then its owner commits.  A start that reads the first record completes what it says.

Invariants: the sinks of a name are given to one user at a time; one that is forgotten meanwhile,
has another owner, or is offered to somebody else than who takes it, is left as it is.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.core.ownership import Owner, is_free_for, key_of
from leveret.broker.queue.quota import give_queue
from leveret.broker.scheduler.task import WaitedWork
from leveret.broker.staging.area import StagingArea
from leveret.broker.staging.claims import Claims
from leveret.broker.staging.release import Sink
from leveret.broker.staging.staging import staging_of
from leveret.errors import PreconditionFailed
from leveret.limits import STEPS_PER_SLICE

#: What it costs in steps to give a sink, and a staging queue: the record of each is written.
_GIVEN_STEPS: Final = 10

#: Staging queues that go with their sink by one record: more than those of most batches.
_GIVEN_AT_ONCE: Final = 128

#: Staging queues that are listed in one step.
_LISTED_PER_STEP: Final = 64


@final
class Giving(WaitedWork):
    """Gives some sinks to one user, or offers them to him.

    `name` is what all of them are called where a request asked for it; a start completes each sink
    by itself.
    """

    def __init__(self, area: StagingArea, claims: Claims, to: Owner, name: str = "") -> None:
        super().__init__()
        self._area: Final = area
        self._to: Final = to
        self._name: Final = name
        self._left: Final = claims
        claims.begin()
        #: True once one was given or offered.
        self.any_done = False
        #: Why the user could not take one of them: he got others while he took these.
        self.refusal: PreconditionFailed | None = None
        #: The one whose queues are being given, and those that are left of them.
        self._sink: Sink | None = None
        self._before: Owner | None = None
        #: True while it counts as the user's, who takes it, although it is not yet.
        self._counts = False
        self._queues: list[WaitingQueue] = []
        self._at_once = False

    def step(self, steps: i64) -> bool:
        """Give some of them, and of their queues."""
        turn = self._area.vhost.turn
        turn.changes += 1
        last = turn.steps + steps
        while self._sink is not None or self._left.any():
            if turn.steps >= last:
                return True
            sink = self._sink
            if sink is None:
                turn.steps += 1
                self._begin_next()
                continue
            turn.steps += _GIVEN_STEPS
            if not self._is_owned(sink):
                self._end(sink)
                if self._is_known(sink):
                    # The record that it is being given must not stay the last one.
                    turn.journal.define("sink", self._area.last_record(sink))
            else:
                turn.journal.begin_tx()
                if self._give_queues(last):
                    self._end(sink)
                    self._area.sinks.own(sink, self._to)
                    turn.journal.define("sink", self._area.last_record(sink))
                turn.journal.end_tx()
        return False

    def _begin_next(self) -> None:
        """Begin with the next sink, unless it is to be left as it is, or is only offered."""
        area = self._area
        turn = area.vhost.turn
        claim = self._left.take()
        sink = claim.sink
        if self._name and not (self._is_known(sink) and claim.holds()):
            return
        if claim.offers:
            self.any_done = True
            sink.offered = self._to
            return
        if claim.takes:
            try:
                area.sinks.check_quota(self._to)
            except PreconditionFailed as error:
                self.refusal = error
                return
            # He may begin other sinks, or take some, while this one's queues are given.
            area.sinks.quota.add(self._to)
            self._counts = True
        self.any_done = True
        turn.steps += _GIVEN_STEPS
        sink.gives_to = self._to
        self._sink = sink
        self._before = claim.owner
        self._queues = area.sinks.staged_of(sink)
        turn.steps += len(self._queues) // _LISTED_PER_STEP
        self._at_once = len(self._queues) <= _GIVEN_AT_ONCE
        if not self._at_once and self._is_owned(sink):
            turn.journal.define("sink", area.last_record(sink))

    def _is_owned(self, sink: Sink) -> bool:
        """Return whether a sink is there and belongs to whom it is taken from."""
        return self._is_known(sink) and key_of(sink.owner) == key_of(self._before)

    def _is_known(self, sink: Sink) -> bool:
        """Return whether a sink is there."""
        return self._area.sinks.known(sink.name, sink.destination) is sink

    def _give_queues(self, last: i64) -> bool:
        """Give queues until `Turn.steps` is at `last`; return whether none is left."""
        vhost = self._area.vhost
        turn = vhost.turn
        while self._queues:
            if turn.steps >= last and not self._at_once:
                return False
            turn.steps += 1
            queue = staging_of(self._queues.pop())
            if queue is None or queue.deleted or not is_free_for(queue.staged_by, self._before):
                continue
            turn.steps += _GIVEN_STEPS
            queue.staged_by = self._to
            give_queue(queue, self._to)
            turn.journal.define("queue", queue.definition(vhost.name))
        return True

    def ended(self) -> None:
        """Let others give sinks of that name, and tell those who wait."""
        if self._name:
            del self._area.sinks.giving[self._name]
        super().ended()

    def _end(self, sink: Sink) -> None:
        """Go on with the next sink."""
        if self._counts:
            self._counts = False
            self._area.sinks.quota.remove(self._to)
        sink.gives_to = None
        self._sink = None
        self._queues = []


def give_sinks(area: StagingArea, claims: Claims, to: Owner) -> Giving:
    """Begin to give sinks, and what their owners staged for them, to `to`, and to journal that.

    Raises: PreconditionFailed (406) where `to` has no room for what he takes, or one of them is
    being given already.
    """
    sinks = area.sinks
    sinks.check_quota(to, claims.takes)
    claims.check_given()
    sinks.giving[claims.name] = to
    giving = Giving(area, claims, to, claims.name)
    # What came before it in this turn may have looked at as many sinks.
    area.vhost.turn.begin(giving, STEPS_PER_SLICE // 4)
    return giving


def give_later(area: StagingArea, sink: Sink, to: Owner) -> None:
    """Complete after a start what a record says of a sink that was being given."""
    claims = Claims(area.sinks, sink.name)
    claims.add(sink)
    sink.gives_to = to
    area.vhost.turn.works.append(Giving(area, claims, to))
