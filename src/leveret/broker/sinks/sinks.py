"""Sinks: publishers of batches, with their destinations and their last committed batches.

A sink is a name and a destination: one job that writes to two destinations has two sinks, each with
its own batches.  A client without a destination has a sink with only a name.  A sink commits
batches with growing numbers, each once: a repeated commit of the highest one, or of a lower one, is
recognized and does nothing (`area.py`).

A sink recorded with only a name is adopted by the first destination that commits under this name:
from then on it is the sink of both, so that a batch that was in progress while a client was
upgraded is recognized.

A sink belongs to the user who committed to it first (`ownership`); a sink recorded by an earlier
release belongs to nobody, until a user commits to it.  A sink without a destination can be used for
others of its name only if those belong to its owner too.

A sink without commits for longer than `publisher_expiry_ms` is forgotten; the sink of a single save
of a table after an hour, because that save is never repeated under its name.

Invariants: batches are released one after the other, in the order of their commits; a sink is not
forgotten during a release; at most one sink of a name can be found without a destination.
"""

from __future__ import annotations

import sys
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core import Core
from leveret.broker.ownership import (
    MAX_SINKS,
    Owner,
    Quota,
    is_free_for,
    key_of,
)
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.accounts import SINK_BYTES, MarkAccount
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.timers import Timed
from leveret.broker.sinks.index import StagingIndex
from leveret.broker.sinks.release import Sink
from leveret.clock import NO_DEADLINE
from leveret.limits import CLIENT_PUBLISHER_EXPIRY_MS, SINKS_PER_USER_MAX
from leveret.names import check_new, is_save

#: The command that gives a sink to another owner; errors name it.
GIVE_SINK: Final = "set_sink_owner"


@final
class Sinks(Timed):
    """The sinks of one vhost; its deadline is when the first of them may expire."""

    def __init__(self, core: Core, vhost: str) -> None:
        super().__init__()
        self.core: Final = core
        self.vhost: Final = vhost
        #: By name and destination.
        self.by_place: dict[tuple[str, str], Sink] = {}
        self.staged: Final = StagingIndex()
        self.quota: Final = Quota(core.quotas.user_limits, MAX_SINKS, SINKS_PER_USER_MAX)
        self.account: Final = MarkAccount(core.accounts)
        #: The names of sinks that a request is giving away, and their new owners.
        self.giving: dict[str, Owner] = {}
        # For each name: the adopted sink; and for each name and owner: how many sinks have a
        # destination.
        self._adopted: dict[str, Sink] = {}
        self._placed: dict[tuple[str, str], i64] = {}

    # -- lookups -----------------------------------------------------------------------------------

    def known(self, name: str, destination: str) -> Sink | None:
        """Return the sink with a name and a destination."""
        sink = self.by_place.get((name, destination))
        return self._adopted.get(name) if sink is None and not destination else sink

    def find(self, name: str, destination: str, by: Owner | None = None) -> Sink | None:
        """Return the sink that `by` refers to, which may be one that the next commit adopts.

        A sink with exactly this name and destination may belong to another user; a sink without a
        destination that `by` would adopt may not.  Without `by` the owner does not matter.
        """
        sink = self.known(name, destination)
        if sink is not None:
            return sink
        nameless = self.by_place.get((name, ""))
        if nameless is None or not _is_open_to(nameless, by):
            return None
        if self._has_placed(name, nameless.owner) or self._has_placed(name, by):
            return None
        return nameless

    def live(self, name: str, destination: str, by: Owner | None = None) -> Sink | None:
        """Return the sink that `by` refers to, unless it has expired."""
        sink = self.find(name, destination, by)
        return None if sink is None or self._is_idle(sink) else sink

    def has(self, name: str, destination: str, batch: i64, by: Owner | None = None) -> bool:
        """Return whether a sink of `by`, or of any user, has committed `batch` or a higher one."""
        return batch <= self.last_batch(name, destination, by)

    def last_batch(self, name: str, destination: str, by: Owner | None = None) -> i64:
        """Return the highest batch committed by a sink of `by`, or of any user; -1 if none."""
        sink = self.live(name, destination, by)
        return -1 if sink is None or not _is_open_to(sink, by) else sink.batch

    def drops(self, name: str, destination: str, batch: i64, by: Owner | None) -> bool:
        """Return whether `by` stages for a committed batch, and count it if so."""
        if not self.has(name, destination, batch, by):
            return False
        sink = self.find(name, destination, by)
        if sink is not None:
            sink.dropped += 1
        return True

    def _has_placed(self, name: str, owner: Owner | None) -> bool:
        """Return whether an owner, or nobody, has a sink of that name with a destination."""
        return (name, key_of(owner)) in self._placed or (name, "") in self._placed

    def named(self, name: str, destination: str | None) -> list[Sink]:
        """Return the sinks of a name, or only the one with a destination."""
        if destination is not None:
            sink = self.by_place.get((name, destination))
            return [] if sink is None else [sink]
        self.core.scheduler.spent += len(self.by_place) // LOOKED_AT_PER_COST
        return [sink for sink in self.by_place.values() if sink.name == name]

    def add(self, sink: Sink) -> None:
        """Add a sink."""
        self.by_place[(sink.name, sink.destination)] = sink
        self.account.book(_memory(sink))
        self.quota.add(sink.owner)
        if sink.destination:
            of = (sink.name, key_of(sink.owner))
            self._placed[of] = self._placed.get(of, 0) + 1
        if sink.adopted:
            self._adopted[sink.name] = sink
        self._watch(sink)

    def _remove(self, sink: Sink) -> None:
        del self.by_place[(sink.name, sink.destination)]
        self.account.book(-_memory(sink))
        self.quota.remove(sink.owner)
        if sink.destination:
            of = (sink.name, key_of(sink.owner))
            self._placed[of] -= 1
            if self._placed[of] == 0:
                del self._placed[of]
        if sink.adopted:
            del self._adopted[sink.name]

    def adopt(self, sink: Sink, destination: str) -> None:
        """Give a destination to a sink that had none."""
        self._remove(sink)
        sink.destination = destination
        sink.adopted = True
        self.add(sink)

    def own(self, sink: Sink, owner: Owner | None) -> None:
        """Make `owner` the owner of a sink."""
        self._remove(sink)
        sink.owner = owner
        sink.offered = None
        self.add(sink)

    # -- commits ----------------------------------------------------------------------------------

    def check_name(self, name: str, destination: str) -> None:
        """Refuse control characters in the names of a new sink.

        Raises: PreconditionFailed (406).
        """
        if self.find(name, destination) is None and not self.staged.has_name(name):
            check_new(name, "sink")
            check_new(destination, "sink's destination")

    def check_quota(self, by: Owner | None, count: int = 1) -> None:
        """Check that a user may have `count` more sinks.  Raises: PreconditionFailed (406)."""
        self.quota.check(
            by,
            f"sinks in vhost '{self.vhost}'",
            "delete one that is not used any more (leveret ctl delete_sink)",
            count,
        )

    # -- staging queues ---------------------------------------------------------------------------

    def staged_of(self, sink: Sink) -> list[WaitingQueue]:
        """Return the current staging queues of a sink."""
        found: list[WaitingQueue] = []
        for place in self._places_of(sink):
            found += self.staged.queues_of(sink.name, place)
        return found

    def has_staged(self, sink: Sink) -> bool:
        """Return whether a sink has any staging queues."""
        return any(self.staged.has(sink.name, place) for place in self._places_of(sink))

    def _places_of(self, sink: Sink) -> list[str]:
        """Return the known destinations of a sink, or none if it is forgotten."""
        found: list[str] = []
        if self.known(sink.name, sink.destination) is sink:
            found.append(sink.destination)
        if sink.destination and sink.adopted and self.known(sink.name, "") is sink:
            found.append("")
        return found

    # -- expiry ------------------------------------------------------------------------------------

    def _is_idle(self, sink: Sink) -> bool:
        core = self.core
        if sink.is_busy():
            return False
        return core.now_ms - sink.time_ms > self._expiry_ms(sink)

    def _expiry_ms(self, sink: Sink) -> i64:
        """Return how long a sink may be idle."""
        expiry_ms = self.core.publisher_expiry_ms
        return min(expiry_ms, CLIENT_PUBLISHER_EXPIRY_MS) if is_save(sink.name) else expiry_ms

    def _watch(self, sink: Sink) -> None:
        """Set the deadline no later than the time when `sink` may expire."""
        since_ms = self.core.now_ms if sink.is_busy() else sink.time_ms
        due_ms = since_ms + self._expiry_ms(sink) + 1
        if due_ms < self.deadline_ms or self.deadline_ms == NO_DEADLINE:
            self.core.timers.set(self, due_ms)

    def due(self, now_ms: i64) -> None:
        """Forget expired sinks, and set the deadline for the others."""
        self.core.scheduler.spent += len(self.by_place) // LOOKED_AT_PER_COST
        for sink in list(self.by_place.values()):
            if self._is_idle(sink):
                self.core.scheduler.spent += 1
                self._remove(sink)
            else:
                self._watch(sink)

    def forget_one(self, sink: Sink) -> None:
        """Forget a sink, and journal that."""
        self._remove(sink)
        place: dict[str, object] = {
            "vhost": self.vhost,
            "name": sink.name,
            "destination": sink.destination,
        }
        self.core.journal.delete("sink", place)

    def release(self) -> None:
        """Remove all sinks, because the vhost is deleted."""
        core = self.core
        core.timers.cancel(self)
        for sink in self.by_place.values():
            while sink.releases:
                sink.releases.pop().end()
        self.by_place.clear()
        self.staged.clear()
        self._placed.clear()
        self._adopted.clear()
        self.quota.clear()
        self.account.end()


def _memory(sink: Sink) -> i64:
    """Return the bytes of memory of a sink."""
    return SINK_BYTES + i64(sys.getsizeof(sink.name) + sys.getsizeof(sink.destination))


def _is_open_to(sink: Sink, by: Owner | None) -> bool:
    """Return whether `by` may commit to a sink; if `by` is None, it may."""
    return by is None or is_free_for(sink.owner, by)
