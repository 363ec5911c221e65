"""Sinks: who publishes in batches, where to, and which of its batches it has committed.

A sink is a name and a destination: the same job that writes to two places is two sinks, each with
batches of its own.  A client that says no destination has a sink that is its name alone.  A sink
commits batches with growing numbers, each once: a commit of its highest one, or of one below, is
known again and does nothing.  The decision about a batch is one record of the journal, which names
the staging queues; from its sync on the batch is there, whatever happens.

A sink that was recorded by its name alone is adopted by the first destination that commits under
this name: it goes on as the sink of both, so that a batch that was on its way while a client was
brought up to date is known again.

A sink belongs to the user who committed to it first (`ownership`); one that an earlier release
recorded belongs to nobody, until somebody commits to it.  A sink without a destination stands for
others of its name only where these are its owner's too.

A sink that committed nothing for longer than `publisher_expiry_ms` is forgotten.

Invariants: batches are released one after the other, in the order of their commits; a sink is not
forgotten while it releases; of a name there is at most one sink that is found without a
destination.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core.ownership import (
    MAX_SINKS,
    Owner,
    Quota,
    is_free_for,
    key_of,
    owner_fields,
)
from leveret.broker.core.timers import Timed
from leveret.broker.staging.release import Release
from leveret.errors import PreconditionFailed
from leveret.limits import RELEASES_PER_SINK_MAX, SINKS_PER_USER_MAX, SINKS_PER_VHOST_MAX
from leveret.names import check_new

if TYPE_CHECKING:
    from leveret.broker.classic.classic import ClassicQueue
    from leveret.broker.vhost.vhost import Vhost


#: What hands over a sink, as errors say it.
GIVE_SINK: Final = "set_sink_owner"


@final
class Sink:
    """One sink; `batch` is the highest that it committed, `time_ms` when it did."""

    def __init__(self, name: str, destination: str) -> None:
        self.name = name
        #: Where it writes to; empty for a sink that is its name alone.
        self.destination = destination
        #: True for one that is found by its name alone too.
        self.adopted = False
        #: None where an earlier release recorded it.
        self.owner: Owner | None = None
        #: Whom its owner offers it to.
        self.offered: Owner | None = None
        self.batch: i64 = -1
        self.time_ms: i64 = 0
        #: Batches that are committed and not all released, in their order.
        self.releases: list[Release] = []
        # Counters since the start.
        self.released: i64 = 0
        self.unroutable: i64 = 0
        #: Messages that came for a batch that was committed, and commits of such batches.
        self.dropped: i64 = 0
        self.repeats: i64 = 0

    def waiting(self) -> i64:
        """Return how many committed messages are not released yet."""
        count: i64 = 0
        for release in self.releases:
            count += release.waiting()
        return count


@final
class Sinks(Timed):
    """The sinks of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        super().__init__()
        self.vhost = vhost
        #: By name and destination.
        self.by_place: dict[tuple[str, str], Sink] = {}
        #: The staging queues of each name, by their ids.
        self.staged: dict[str, dict[i64, ClassicQueue]] = {}
        self.quota: Final = Quota(vhost.turn, MAX_SINKS, SINKS_PER_USER_MAX)
        # Of each name: the one that was adopted, and of each owner too how many have a destination.
        self._adopted: dict[str, Sink] = {}
        self._placed: dict[tuple[str, str], i64] = {}

    # -- which sink -------------------------------------------------------------------------------

    def known(self, name: str, destination: str) -> Sink | None:
        """Return the sink of that name and destination."""
        sink = self.by_place.get((name, destination))
        return self._adopted.get(name) if sink is None and not destination else sink

    def find(self, name: str, destination: str, by: Owner | None = None) -> Sink | None:
        """Return the sink that `by` means, be it one that his next commit is to adopt.

        One of that place may be another's; one without a destination that he adopts is not.
        Without `by` it may be anybody's.
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
        """Return the sink that `by` means, unless it is to be forgotten."""
        sink = self.find(name, destination, by)
        return None if sink is None or self._is_idle(sink) else sink

    def has(self, name: str, destination: str, batch: i64, by: Owner | None = None) -> bool:
        """Tell whether a sink of `by`, or of anybody, has committed that batch, or a higher one."""
        return batch <= self.last_batch(name, destination, by)

    def last_batch(self, name: str, destination: str, by: Owner | None = None) -> i64:
        """Return the highest batch that a sink of `by`, or of anybody, committed; -1 without it."""
        sink = self.live(name, destination, by)
        return -1 if sink is None or not _is_open_to(sink, by) else sink.batch

    def drops(self, name: str, destination: str, batch: i64, by: Owner | None) -> bool:
        """Tell whether what `by` stages for a batch comes too late, and count it if so."""
        if not self.has(name, destination, batch, by):
            return False
        sink = self.find(name, destination, by)
        if sink is not None:
            sink.dropped += 1
        return True

    def _has_placed(self, name: str, owner: Owner | None) -> bool:
        """Tell whether an owner, or nobody, has a sink of that name with a destination."""
        return (name, key_of(owner)) in self._placed or (name, "") in self._placed

    def _add(self, sink: Sink) -> None:
        self.by_place[(sink.name, sink.destination)] = sink
        self.quota.add(sink.owner)
        if sink.destination:
            of = (sink.name, key_of(sink.owner))
            self._placed[of] = self._placed.get(of, 0) + 1
        if sink.adopted:
            self._adopted[sink.name] = sink

    def _remove(self, sink: Sink) -> None:
        del self.by_place[(sink.name, sink.destination)]
        self.quota.remove(sink.owner)
        if sink.destination:
            of = (sink.name, key_of(sink.owner))
            self._placed[of] -= 1
            if self._placed[of] == 0:
                del self._placed[of]
        if sink.adopted:
            del self._adopted[sink.name]

    def _adopt(self, sink: Sink, destination: str) -> None:
        """Give a sink that is its name alone the destination that it has from now on."""
        self._remove(sink)
        sink.destination = destination
        sink.adopted = True
        self._add(sink)

    def _own(self, sink: Sink, owner: Owner | None) -> None:
        """Let a sink belong to somebody from now on."""
        self._remove(sink)
        sink.owner = owner
        sink.offered = None
        self._add(sink)

    # -- commits ----------------------------------------------------------------------------------

    def check_name(self, name: str, destination: str) -> None:
        """Refuse control characters in the names of a new sink.

        Raises: PreconditionFailed (406).
        """
        if self.find(name, destination) is None and name not in self.staged:
            check_new(name, "sink")
            check_new(destination, "sink's destination")

    def check_room(self, name: str, destination: str, by: Owner | None) -> None:
        """Check that a sink of `by` may commit one batch more.

        Raises: PreconditionFailed (406).
        """
        self.check_name(name, destination)
        sink = self.find(name, destination, by)
        if sink is None and (
            len(self.by_place) >= SINKS_PER_VHOST_MAX or not self.quota.has_room(by)
        ):
            self._sweep()
            if len(self.by_place) >= SINKS_PER_VHOST_MAX:
                raise PreconditionFailed(f"a vhost has at most {SINKS_PER_VHOST_MAX} sinks")
            self.check_quota(by)
        if sink is not None and len(sink.releases) >= RELEASES_PER_SINK_MAX:
            raise PreconditionFailed(
                f"sink '{name}' has {RELEASES_PER_SINK_MAX} batches that are not released yet"
            )

    def check_quota(self, by: Owner | None, count: int = 1) -> None:
        """Check that a user may have so many more sinks.  Raises: PreconditionFailed (406)."""
        self.quota.check(
            by,
            f"sinks in vhost '{self.vhost.name}'",
            "delete one that is not used any more (leveret ctl delete_sink)",
            count,
        )

    def decide(
        self,
        name: str,
        destination: str,
        batch: i64,
        queues: list[ClassicQueue],
        unroutable: str,
        by: Owner | None,
    ) -> None:
        """Commit a batch of `by`, whose the sink is, or is from now on.

        From the sync of the group at hand on the batch goes its way.

        What was staged for lower batches of the sink goes: nobody can commit it any more.
        """
        vhost = self.vhost
        journal = vhost.turn.journal
        time_ms = vhost.turn.now_ms
        # First, because what cannot be written must change nothing.
        record = self._record(name, destination, time_ms, batch, queues, unroutable, by)
        journal.define("sink", record)
        sink = self._committed(name, destination, batch, time_ms, by)
        if queues:
            release = Release(vhost, sink, batch, queues, unroutable)
            sink.releases.append(release)
            release.begin(journal.group)
        self._drop_lower(sink)

    def repeated(self, name: str, destination: str, by: Owner | None) -> bool:
        """Count a commit that is known again; tell whether the journal was told something."""
        sink = self.find(name, destination, by)
        if sink is None:
            return False
        sink.repeats += 1
        placed = bool(destination) and not sink.destination
        owned = sink.owner is None and by is not None
        if not placed and not owned:
            return False
        record = self._record(name, destination, sink.time_ms, sink.batch, [], "", by)
        self.vhost.turn.journal.define("sink", record)
        if owned:
            self._own(sink, by)
        if placed:
            self._adopt(sink, destination)
        return True

    def _committed(
        self, name: str, destination: str, batch: i64, time_ms: i64, by: Owner | None
    ) -> Sink:
        sink = self.find(name, destination, by)
        if sink is None:
            sink = Sink(name, destination)
            sink.owner = by
            self._add(sink)
        else:
            if by is not None and not by.is_same(sink.owner):
                # It was nobody's, or is to be forgotten.
                self._own(sink, by)
            if destination and not sink.destination:
                self._adopt(sink, destination)
        sink.batch = batch
        sink.time_ms = time_ms
        if self.deadline_ms < 0:
            self._arm()
        return sink

    def restore(
        self,
        sink: Sink,
        releases: list[tuple[i64, list[ClassicQueue], str]],
    ) -> None:
        """Take a sink back as the journal told it, with what it had not released."""
        self._add(sink)
        if self.deadline_ms < 0:
            self._arm()
        for number, queues, unroutable in releases:
            release = Release(self.vhost, sink, number, queues, unroutable)
            sink.releases.append(release)
            release.begin(0)

    def go_on(self) -> None:
        """Go on with all that is to be released: what it waited for may be over."""
        for sink in self.by_place.values():
            if sink.releases:
                sink.releases[0].go_on()

    def definitions(self) -> Iterator[dict[str, object]]:
        """Yield the sinks as records of a checkpoint; they may change meanwhile."""
        for sink in list(self.by_place.values()):
            releases = list(sink.releases)
            for release in releases:
                yield self._definition(sink, release.batch, release.left(), release.unroutable)
            if not releases or releases[-1].batch != sink.batch:
                yield self._definition(sink, sink.batch, [], "")

    def _definition(
        self, sink: Sink, batch: i64, queues: list[ClassicQueue], unroutable: str
    ) -> dict[str, object]:
        return _definition(
            self.vhost.name,
            sink.name,
            sink.destination,
            sink.adopted,
            sink.time_ms,
            batch,
            queues,
            unroutable,
            sink.owner,
        )

    def _record(
        self,
        name: str,
        destination: str,
        time_ms: i64,
        batch: i64,
        queues: list[ClassicQueue],
        unroutable: str,
        by: Owner | None,
    ) -> dict[str, object]:
        """Return the record of a decision of `by` that is about to be taken."""
        sink = self.find(name, destination, by)
        adopted = sink is not None and sink.adopted
        if sink is not None and destination and not sink.destination:
            adopted = True
        elif sink is not None:
            destination = sink.destination
        return _definition(
            self.vhost.name, name, destination, adopted, time_ms, batch, queues, unroutable, by
        )

    # -- staging queues ---------------------------------------------------------------------------

    def enlist(self, queue: ClassicQueue) -> None:
        """Know a staging queue."""
        if queue.staging is not None:
            self.staged.setdefault(queue.staging.sink, {})[queue.queue_id] = queue

    def delist(self, queue: ClassicQueue) -> None:
        """Forget a staging queue that is deleted."""
        if queue.staging is None:
            return
        name = queue.staging.sink
        queues = self.staged.get(name)
        if queues is not None:
            queues.pop(queue.queue_id, None)
            if not queues:
                del self.staged[name]

    def staged_of(self, sink: Sink) -> list[ClassicQueue]:
        """Return the staging queues of a sink, in the order of their declares."""
        found: list[ClassicQueue] = []
        for queue in self.staged.get(sink.name, {}).values():
            staging = queue.staging
            if staging is not None and self.known(sink.name, staging.destination) is sink:
                found.append(queue)
        return found

    def _drop_lower(self, sink: Sink) -> None:
        """Delete what its owner staged for lower batches, unless a commit of it is under way."""
        for queue in self.staged_of(sink):
            staging = queue.staging
            if staging is None or staging.batch >= sink.batch:
                continue
            if not is_free_for(staging.owner, sink.owner):
                continue
            if staging.release is None and not staging.sealed:
                self.vhost.drop_queue(queue)

    # -- owners -----------------------------------------------------------------------------------

    def named(self, name: str, destination: str | None = None) -> list[Sink]:
        """Return the sinks of a name, or the one of a destination."""
        return [
            sink
            for sink in self.by_place.values()
            if sink.name == name and destination in (None, sink.destination)
        ]

    def give(self, sink: Sink, to: Owner) -> None:
        """Let a sink, and what its owner staged for it, belong to `to`, and journal that."""
        vhost = self.vhost
        journal = vhost.turn.journal
        before = sink.owner
        vhost.turn.changes += 1
        journal.begin_tx()
        for queue in self.staged_of(sink):
            staging = queue.staging
            if staging is not None and is_free_for(staging.owner, before):
                staging.owner = to
                journal.define("queue", queue.definition(vhost.name))
        self._own(sink, to)
        left = [release for release in sink.releases if release.batch == sink.batch]
        if left:
            record = self._definition(sink, sink.batch, left[0].left(), left[0].unroutable)
        else:
            record = self._definition(sink, sink.batch, [], "")
        journal.define("sink", record)
        journal.end_tx()

    # -- forgetting -------------------------------------------------------------------------------

    def _is_idle(self, sink: Sink) -> bool:
        turn = self.vhost.turn
        return not sink.releases and turn.now_ms - sink.time_ms > turn.publisher_expiry_ms

    def _sweep(self) -> None:
        """Forget those that committed nothing for long."""
        for sink in list(self.by_place.values()):
            if self._is_idle(sink):
                self._remove(sink)

    def _arm(self) -> None:
        turn = self.vhost.turn
        if self.by_place:
            turn.timers.set(self, turn.now_ms + turn.publisher_expiry_ms + 1)

    def due(self, now_ms: i64) -> None:
        """Forget whom there is to forget."""
        self._sweep()
        self._arm()

    def forget(self, name: str, destination: str | None = None) -> bool:
        """Forget the sinks of a name, or the one of a destination, so that they may begin anew.

        Returns whether there was any.  Raises: PreconditionFailed (406) while one of them has
        batches that are not released.
        """
        sinks = self.named(name, destination)
        for sink in sinks:
            if sink.releases:
                raise PreconditionFailed(f"sink '{name}' has batches that are not released yet")
        self.vhost.turn.changes += len(sinks)
        for sink in sinks:
            self._remove(sink)
            place: dict[str, object] = {
                "vhost": self.vhost.name,
                "name": name,
                "destination": sink.destination,
            }
            self.vhost.turn.journal.delete("sink", place)
        return len(sinks) > 0

    def drop(self) -> None:
        """Forget all: the vhost is deleted."""
        self.by_place.clear()
        self.staged.clear()
        self._adopted.clear()
        self._placed.clear()
        self.quota.clear()
        self.vhost.turn.timers.cancel(self)


def _is_open_to(sink: Sink, by: Owner | None) -> bool:
    """Tell whether `by` may commit to a sink; None asks for nobody."""
    return by is None or is_free_for(sink.owner, by)


def _definition(
    vhost: str,
    sink: str,
    destination: str,
    adopted: bool,
    time_ms: i64,
    batch: i64,
    queues: list[ClassicQueue],
    unroutable: str,
    owner: Owner | None,
) -> dict[str, object]:
    """Return the decision about a batch as the journal holds it."""
    return {
        "vhost": vhost,
        "name": sink,
        "destination": destination,
        "adopted": adopted,
        "batch": int(batch),
        "time_ms": int(time_ms),
        "queues": [int(queue.queue_id) for queue in queues],
        "unroutable": unroutable,
        **owner_fields(owner),
    }
