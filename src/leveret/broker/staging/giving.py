"""Giving sinks to another user, with what their owner staged for them, slice after slice.

A sink with few staging queues is given at once, by one record.  Of one with many a record first
says whom it is being given to; then the queues go, some by one record, and the sink itself comes
last: until then its owner commits.  A start that reads the first record completes what it says.

Invariants: a sink is given once at a time; one that is forgotten meanwhile, or has another owner,
is left as it is.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.core.ownership import Owner, is_free_for, key_of
from leveret.broker.core.work import WaitedWork
from leveret.broker.queue.quota import give_queue
from leveret.broker.staging.area import StagingArea
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
    """Gives some sinks to one user."""

    def __init__(self, area: StagingArea, sinks: list[Sink], to: Owner) -> None:
        super().__init__()
        self._area: Final = area
        self._to: Final = to
        #: The sinks that are left, the next one last, with whom they belonged to.
        self._left: Final = [(sink, sink.owner) for sink in reversed(sinks)]
        #: The one whose queues are being given, and those that are left of them.
        self._sink: Sink | None = None
        self._before: Owner | None = None
        self._queues: list[WaitingQueue] = []
        self._at_once = False

    def step(self, steps: i64) -> bool:
        """Give some of them, and of their queues."""
        turn = self._area.vhost.turn
        turn.changes += 1
        last = turn.steps + steps
        while self._sink is not None or self._left:
            if turn.steps >= last:
                return True
            turn.steps += _GIVEN_STEPS
            sink = self._sink
            if sink is None:
                self._begin_next()
            elif not self._is_owned(sink):
                self._end(sink)
                if self._is_known(sink):
                    # The record that it is being given must not stay the last one.
                    turn.journal.define("sink", self._area.last_record(sink))
            else:
                turn.journal.begin_tx()
                if self._give_queues(last):
                    self._area.sinks.own(sink, self._to)
                    self._end(sink)
                    turn.journal.define("sink", self._area.last_record(sink))
                turn.journal.end_tx()
        return False

    def _begin_next(self) -> None:
        """Begin with the next sink."""
        area = self._area
        turn = area.vhost.turn
        sink, self._before = self._left.pop()
        self._sink = sink
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

    def _end(self, sink: Sink) -> None:
        """Go on with the next sink."""
        sink.gives_to = None
        self._sink = None
        self._queues = []


def give_sinks(area: StagingArea, sinks: list[Sink], to: Owner) -> Giving:
    """Begin to give sinks, and what their owners staged for them, to `to`, and to journal that.

    Raises: PreconditionFailed (406) for one that is being given already.
    """
    for sink in sinks:
        if sink.gives_to is not None:
            raise PreconditionFailed(
                f"sink '{sink.name}' is being handed over to user '{sink.gives_to.name}'"
            )
    for sink in sinks:
        sink.gives_to = to
    giving = Giving(area, sinks, to)
    # What came before it in this turn may have looked at as many sinks.
    area.vhost.turn.begin(giving, STEPS_PER_SLICE // 4)
    return giving


def give_later(area: StagingArea, sink: Sink, to: Owner) -> None:
    """Complete after a start what a record says of a sink that was being given."""
    sink.gives_to = to
    area.vhost.turn.works.append(Giving(area, [sink], to))
