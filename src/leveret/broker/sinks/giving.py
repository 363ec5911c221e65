"""Gives sinks to another user, with their owner's staging queues, or only offers them.

A sink with few staging queues is given at once, by one record.  For a sink with many, a record
first names the new owner.  Then the queues are given one by one; the last few are given together
with the sink, whose owner can commit until then.  A start that reads the first record completes the
operation.

Invariants: the sinks of a name are given to one user at a time; a sink is not given if in the
meantime it is forgotten, gets another owner, or is offered to a user other than the one who accepts
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from leveret.broker.ownership import Owner, is_free_for, key_of
from leveret.broker.queue.quota import give_queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import LISTED_PER_COST, SINK_GIVEN
from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.area import StagingArea
from leveret.broker.sinks.claims import Claim, check_given
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.staging import staging_of
from leveret.errors import PreconditionFailed

#: The maximum number of staging queues given with their sink by one record, more than most batches
#: have.
_GIVEN_AT_ONCE: Final = 128


@final
class Giving:
    """An operation that gives some sinks to one user, or offers them, and its result.

    `name` is the common name of the sinks if a request started the operation; after a restart, the
    operation is completed for each sink separately.
    """

    def __init__(self, area: StagingArea, to: Owner, name: str = "") -> None:
        self._area: Final = area
        self._to: Final = to
        self._name: Final = name
        #: The long operation, once a request has begun it.
        self.task: Task | None = None
        #: True once a sink was given or offered.
        self.any_done = False
        #: The error if the user could not take one of the sinks, because they got others meanwhile.
        self.refusal: PreconditionFailed | None = None

    def run(self, claims: Sequence[Claim]) -> Iterator[int]:
        """Give or offer the claimed sinks."""
        for claim in claims:
            yield 1
            if not self._name or (self._is_known(claim.sink) and claim.holds()):
                yield from self._give_or_offer(claim)
        if self._name:
            # Other requests may give sinks of that name now.
            del self._area.sinks.giving[self._name]

    def _give_or_offer(self, claim: Claim) -> Iterator[int]:
        sinks = self._area.sinks
        sink = claim.sink
        if claim.offers:
            self.any_done = True
            sink.offered = self._to
            return
        if claim.takes:
            try:
                sinks.check_quota(self._to)
            except PreconditionFailed as error:
                self.refusal = error
                return
            # The user may begin or take other sinks while this one's queues are given.
            sinks.quota.add(self._to)
        self.any_done = True
        sink.gives_to = self._to
        yield from self._give(sink, claim.owner, claim.takes)

    def _give(self, sink: Sink, before: Owner | None, counts: bool) -> Iterator[int]:
        """Give a sink with its queues; if it `counts`, it already counts for the new owner."""
        area = self._area
        journal = area.vhost.core.journal
        queues = area.sinks.staged_of(sink)
        area.vhost.core.scheduler.spent += len(queues) // LISTED_PER_COST
        if len(queues) > _GIVEN_AT_ONCE and self._is_owned(sink, before):
            journal.define("sink", area.last_record(sink))
        while len(queues) > _GIVEN_AT_ONCE and self._is_owned(sink, before):
            self._give_queue(queues.pop(), before)
            yield SINK_GIVEN
        given = self._is_owned(sink, before)
        journal.begin_tx()
        if given:
            for queue in queues:
                self._give_queue(queue, before)
        if counts:
            area.sinks.quota.remove(self._to)
        sink.gives_to = None
        if given:
            area.sinks.own(sink, self._to)
        if self._is_known(sink):
            # The last record of the sink must no longer say that it is being given.
            journal.define("sink", area.last_record(sink))
        journal.end_tx()
        yield SINK_GIVEN * (1 + len(queues)) if given else SINK_GIVEN

    def _is_owned(self, sink: Sink, by: Owner | None) -> bool:
        """Return whether a sink exists and belongs to `by`, its previous owner."""
        return self._is_known(sink) and key_of(sink.owner) == key_of(by)

    def _is_known(self, sink: Sink) -> bool:
        """Return whether a sink exists."""
        return self._area.sinks.known(sink.name, sink.destination) is sink

    def _give_queue(self, queue: WaitingQueue, before: Owner | None) -> None:
        staging = staging_of(queue)
        if staging is None or staging.deleted or not is_free_for(staging.staged_by, before):
            return
        vhost = self._area.vhost
        staging.staged_by = self._to
        give_queue(staging, self._to)
        vhost.core.journal.define("queue", staging.definition(vhost.name))


def give_sinks(area: StagingArea, name: str, claims: Sequence[Claim], to: Owner) -> Giving:
    """Begin to give sinks of a name, with their owners' staging queues, to `to`.

    Raises: PreconditionFailed (406) if `to` has no room for the sinks, or one of them is already
    being given.
    """
    sinks = area.sinks
    sinks.check_quota(to, sum(claim.takes for claim in claims))
    check_given(sinks, name, claims)
    sinks.giving[name] = to
    giving = Giving(area, to, name)
    giving.task = area.vhost.core.scheduler.start(giving.run(claims))
    return giving


def give_later(area: StagingArea, sink: Sink, to: Owner) -> None:
    """After a restart, complete the transfer of a sink that a record describes."""
    sink.gives_to = to
    area.vhost.core.scheduler.start_later(Giving(area, to).run([Claim(sink)]))
