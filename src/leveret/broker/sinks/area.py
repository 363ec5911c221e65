"""The staging area of a virtual host: its staging queues, its sinks, and their commits.

The decision to commit a batch is one journal record, which names the staging queues; once the
record is synced, the batch is committed, whatever happens.  Messages staged for batches of the sink
with lower numbers are then deleted, because they can never be committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import STAGING_DESTINATION, STAGING_SINK, Arguments
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.core import Core
from leveret.broker.ownership import Owner, is_free_for, owner_fields
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import LISTED_PER_COST
from leveret.broker.sinks.heir import have_one_place
from leveret.broker.sinks.release import Release, Sink
from leveret.broker.sinks.sinks import Sinks
from leveret.broker.sinks.staging import StagingQueue, staging_of
from leveret.broker.vhost.staging_queues import StagingQueues
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import PreconditionFailed
from leveret.limits import RELEASES_PER_SINK_MAX, SINKS_PER_VHOST_MAX

#: The field of a sink's record with the user to whom it is being given.
GIVES_TO: Final = "gives_to"


@final
class StagingArea(StagingQueues):
    """The staging area of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self.vhost: Final = vhost
        self.sinks: Final = Sinks(vhost.core, vhost.name)

    # -- staging queues ---------------------------------------------------------------------------

    def check(self, arguments: Arguments) -> None:
        """Refuse a staging queue of a new sink with control characters in its name.

        Raises: PreconditionFailed (406).
        """
        sink, destination = arguments.get(STAGING_SINK), arguments.get(STAGING_DESTINATION, "")
        if isinstance(sink, str) and isinstance(destination, str):
            self.sinks.check_name(sink, destination)

    def make(self, core: Core, queue_id: i64, name: str, attributes: QueueAttributes) -> Queue:
        """Return a new staging queue."""
        if not isinstance(attributes.arguments.get(STAGING_SINK), str):
            return super().make(core, queue_id, name, attributes)
        queue = StagingQueue(
            self.vhost,
            self.sinks,
            core,
            queue_id,
            name,
            attributes,
        )
        self.sinks.staged.add(queue.sink, queue.destination, queue)
        return queue

    def release(self) -> None:
        """Remove all staging queues and sinks, because the vhost is deleted."""
        self.sinks.release()

    def _drop_lower(self, sink: Sink) -> None:
        """Delete, in a task, the owner's staging queues for batches with lower numbers."""
        if not sink.drops_lower and self.sinks.has_staged(sink):
            # A transaction may have many commits, so the queues are deleted later, by a task.
            sink.drops_lower = True
            self.vhost.core.scheduler.start_later(self._dropping(sink))

    def _dropping(self, sink: Sink) -> Iterator[int]:
        """Delete the owner's staging queues for batches before the sink's last committed one.

        A queue whose batch is being committed is not deleted.
        """
        batch: i64 = -1
        # Meanwhile, the sink may commit a batch with a higher number.
        while batch < sink.batch:
            batch = sink.batch
            queues = self.sinks.staged_of(sink)
            yield len(queues) // LISTED_PER_COST
            for queue in queues:
                self._drop_if_lower(sink, queue)
                yield 1
        sink.drops_lower = False

    def _drop_if_lower(self, sink: Sink, queue: WaitingQueue) -> None:
        staging = staging_of(queue)
        if staging is None or staging.deleted or staging.batch >= sink.batch:
            return
        if self.sinks.known(sink.name, staging.destination) is not sink:
            return
        mine = is_free_for(staging.staged_by, sink.owner)
        if mine and staging.release is None and not staging.sealed:
            self.vhost.queues.drop(staging)

    # -- commits ----------------------------------------------------------------------------------

    def check_room(self, name: str, destination: str, by: Owner | None) -> None:
        """Check that a sink of `by` may commit one more batch.

        Raises: PreconditionFailed (406).
        """
        self.sinks.check_name(name, destination)
        sink = self.sinks.find(name, destination, by)
        if sink is None:
            if len(self.sinks.by_place) >= SINKS_PER_VHOST_MAX:
                raise PreconditionFailed(
                    f"vhost '{self.vhost.name}' has at most {SINKS_PER_VHOST_MAX} sinks: forget "
                    "sinks that are not used any more (leveret ctl delete_sink)"
                )
            if not self.sinks.account.has_room():
                raise PreconditionFailed(
                    "publishers, deduplication keys, stored offsets and sinks take all of their "
                    "share of the memory: forget sinks that are not used any more "
                    "(leveret ctl delete_sink)"
                )
            self.sinks.check_quota(by)
        if sink is not None and len(sink.releases) >= RELEASES_PER_SINK_MAX:
            raise PreconditionFailed(
                f"sink '{name}' has {RELEASES_PER_SINK_MAX} batches that are not released yet"
            )

    def decide(
        self,
        name: str,
        destination: str,
        batch: i64,
        queues: list[StagingQueue],
        unroutable: str,
        by: Owner | None,
    ) -> None:
        """Commit a batch of `by`, who owns the sink or owns it from now on.

        The release begins once the current group is synced.  Staging queues for batches of the sink
        with lower numbers are deleted, because they can never be committed.
        """
        journal = self.vhost.core.journal
        sink = self.sinks.find(name, destination, by)
        if sink is None:
            sink = Sink(name, destination)
            sink.owner = by
            sink.time_ms = self.vhost.core.now_ms
            self.sinks.add(sink)
        else:
            self._take(sink, destination, by)
        sink.batch = batch
        sink.time_ms = self.vhost.core.now_ms
        # Every value in a commit can be written: see `commit.read_command`.
        at_once = have_one_place(queues)
        journal.define("sink", self._definition(sink, batch, queues, unroutable, at_once))
        if queues:
            self._release(sink, batch, queues, unroutable, at_once, journal.group)
        self._drop_lower(sink)

    def repeated(self, name: str, destination: str, by: Owner | None) -> bool:
        """Count a repeated commit of a committed batch; return whether it wrote a record."""
        sink = self.sinks.find(name, destination, by)
        if sink is None:
            return False
        sink.repeats += 1
        if not self._take(sink, destination, by):
            return False
        self.vhost.core.journal.define("sink", self._definition(sink, sink.batch, [], ""))
        return True

    def _take(self, sink: Sink, destination: str, by: Owner | None) -> bool:
        """Set a sink's owner and destination from its commit; return whether either changed.

        If the sink's owner differs, it had none or is about to be forgotten.
        """
        owned = by is not None and not by.is_same(sink.owner)
        placed = bool(destination) and not sink.destination
        if owned:
            self.sinks.own(sink, by)
        if placed:
            self.sinks.adopt(sink, destination)
        return owned or placed

    def restore(
        self,
        sink: Sink,
        releases: list[tuple[i64, list[StagingQueue], str, bool]],
    ) -> None:
        """Restore a sink from the journal, with the batches that it had not released."""
        self.sinks.add(sink)
        for number, queues, unroutable, at_once in releases:
            self._release(sink, number, queues, unroutable, at_once, 0)

    def _release(
        self,
        sink: Sink,
        batch: i64,
        queues: list[StagingQueue],
        unroutable: str,
        at_once: bool,
        group: i64,
    ) -> None:
        """Release a committed batch once `group` is synced."""
        release = Release(self.vhost, sink, batch, list(queues), unroutable, at_once)
        for queue in queues:
            queue.release = release
        sink.releases.append(release)
        release.begin(group)

    def go_on(self) -> None:
        """Resume all releases, because what they wait for may have happened."""
        for sink in self.sinks.by_place.values():
            if sink.releases:
                sink.releases[0].go_on()

    def definitions(self) -> Iterator[dict[str, object]]:
        """Yield the sinks as checkpoint records; they may change meanwhile."""
        for sink in list(self.sinks.by_place.values()):
            releases = list(sink.releases)
            for release in releases:
                yield self._of_release(sink, release)
            if not releases or releases[-1].batch != sink.batch:
                yield self._definition(sink, sink.batch, [], "")

    def batch_starts(self) -> Iterator[dict[str, object]]:
        """Yield the records of the batches that begin in streams; they may change meanwhile."""
        for sink in list(self.sinks.by_place.values()):
            for release in list(sink.releases):
                yield from release.starts()

    def release_of(self, name: str, destination: str, batch: i64, by: Owner) -> Release | None:
        """Return the release of a committed batch, if it has not ended."""
        sink = self.sinks.find(name, destination, by)
        if sink is not None:
            for release in sink.releases:
                if release.batch == batch:
                    return release
        return None

    def _of_release(self, sink: Sink, release: Release) -> dict[str, object]:
        """Return the decision about a batch that is not released yet."""
        left = release.left()
        return self._definition(sink, release.batch, left, release.unroutable, release.at_once)

    def _definition(
        self,
        sink: Sink,
        batch: i64,
        queues: Sequence[WaitingQueue],
        unroutable: str,
        at_once: bool = False,
    ) -> dict[str, object]:
        """Return the decision about a batch as a journal record."""
        return {
            "vhost": self.vhost.name,
            "name": sink.name,
            "destination": sink.destination,
            "adopted": sink.adopted,
            "batch": int(batch),
            "time_ms": int(sink.time_ms),
            "queues": [int(queue.queue_id) for queue in queues],
            "unroutable": unroutable,
            "at_once": at_once,
            **owner_fields(sink.owner),
            **owner_fields(sink.gives_to, GIVES_TO),
        }

    def last_record(self, sink: Sink) -> dict[str, object]:
        """Return the last decision of a sink as a journal record."""
        for release in sink.releases:
            if release.batch == sink.batch:
                return self._of_release(sink, release)
        return self._definition(sink, sink.batch, [], "")


def area_of(vhost: Vhost) -> StagingArea:
    """Return the staging area of a vhost."""
    area = vhost.staging
    if isinstance(area, StagingArea):
        return area
    raise RuntimeError("a broker's vhosts have staging areas")
