"""Sinks: who publishes in batches, and which of its batches it has committed.

A sink is a name.  It commits batches with growing numbers, each once: a commit of its highest one,
or of one below, is known again and does nothing.  The decision about a batch is one record of the
journal, which names the staging queues; from its sync on the batch is there, whatever happens.

A sink that committed nothing for longer than `publisher_expiry_ms` is forgotten.

Invariants: batches are released one after the other, in the order of their commits; a sink is not
forgotten while it releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.release import Release
from leveret.broker.timers import Timed
from leveret.errors import PreconditionFailed
from leveret.limits import RELEASES_PER_SINK_MAX, SINKS_PER_VHOST_MAX

if TYPE_CHECKING:
    from leveret.broker.classic import ClassicQueue
    from leveret.broker.vhost import Vhost


@final
class Sink:
    """One sink; `batch` is the highest that it committed, `time_ms` when it did."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batch: i64 = -1
        self.time_ms: i64 = 0
        #: Batches that are committed and not all released, in their order.
        self.releases: list[Release] = []
        # Counters since the start.
        self.released: i64 = 0
        self.unroutable: i64 = 0

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
        self.by_name: dict[str, Sink] = {}

    def has(self, name: str, batch: i64) -> bool:
        """Tell whether a sink has committed that batch, or a higher one."""
        sink = self.by_name.get(name)
        return sink is not None and not self._is_idle(sink) and batch <= sink.batch

    def check_room(self, name: str) -> None:
        """Check that a sink may commit one batch more.  Raises: PreconditionFailed (406)."""
        sink = self.by_name.get(name)
        if sink is None and len(self.by_name) >= SINKS_PER_VHOST_MAX:
            self._sweep()
            if len(self.by_name) >= SINKS_PER_VHOST_MAX:
                raise PreconditionFailed(f"a vhost has at most {SINKS_PER_VHOST_MAX} sinks")
        if sink is not None and len(sink.releases) >= RELEASES_PER_SINK_MAX:
            raise PreconditionFailed(
                f"sink '{name}' has {RELEASES_PER_SINK_MAX} batches that are not released yet"
            )

    def decide(self, name: str, batch: i64, queues: list[ClassicQueue], unroutable: str) -> None:
        """Commit a batch: from the sync of the group at hand on it goes its way."""
        vhost = self.vhost
        journal = vhost.turn.journal
        time_ms = vhost.turn.now_ms
        journal.define("sink", _definition(vhost.name, name, time_ms, batch, queues, unroutable))
        sink = self._committed(name, batch, time_ms)
        if queues:
            release = Release(vhost, sink, batch, queues, unroutable)
            sink.releases.append(release)
            release.begin(journal.group)

    def _committed(self, name: str, batch: i64, time_ms: i64) -> Sink:
        sink = self.by_name.get(name)
        if sink is None:
            sink = Sink(name)
            self.by_name[name] = sink
        sink.batch = batch
        sink.time_ms = time_ms
        if self.deadline_ms < 0:
            self._arm()
        return sink

    def restore(
        self,
        name: str,
        batch: i64,
        time_ms: i64,
        releases: list[tuple[i64, list[ClassicQueue], str]],
    ) -> None:
        """Take a sink back as the journal told it, with what it had not released."""
        sink = self._committed(name, batch, time_ms)
        for number, queues, unroutable in releases:
            release = Release(self.vhost, sink, number, queues, unroutable)
            sink.releases.append(release)
            release.begin(0)

    def go_on(self) -> None:
        """Go on with all that is to be released: what it waited for may be over."""
        for sink in self.by_name.values():
            if sink.releases:
                sink.releases[0].go_on()

    def definitions(self) -> Iterator[dict[str, object]]:
        """Yield the sinks as records of a checkpoint; they may change meanwhile."""
        name = self.vhost.name
        for sink in list(self.by_name.values()):
            releases = list(sink.releases)
            for release in releases:
                left = release.left()
                yield _definition(
                    name, sink.name, sink.time_ms, release.batch, left, release.unroutable
                )
            if not releases or releases[-1].batch != sink.batch:
                yield _definition(name, sink.name, sink.time_ms, sink.batch, [], "")

    # -- forgetting -------------------------------------------------------------------------------

    def _is_idle(self, sink: Sink) -> bool:
        turn = self.vhost.turn
        return not sink.releases and turn.now_ms - sink.time_ms > turn.publisher_expiry_ms

    def _sweep(self) -> None:
        """Forget those that committed nothing for long."""
        for sink in list(self.by_name.values()):
            if self._is_idle(sink):
                del self.by_name[sink.name]

    def _arm(self) -> None:
        turn = self.vhost.turn
        if self.by_name:
            turn.timers.set(self, turn.now_ms + turn.publisher_expiry_ms + 1)

    def due(self, now_ms: i64) -> None:
        """Forget whom there is to forget."""
        self._sweep()
        self._arm()

    def forget(self, name: str) -> bool:
        """Forget a sink, so that it may begin anew; tell whether it was there.

        Raises: PreconditionFailed (406) while it has batches that are not released.
        """
        sink = self.by_name.get(name)
        if sink is None:
            return False
        if sink.releases:
            raise PreconditionFailed(f"sink '{name}' has batches that are not released yet")
        del self.by_name[name]
        self.vhost.turn.journal.delete("sink", {"vhost": self.vhost.name, "name": name})
        return True

    def drop(self) -> None:
        """Forget all: the vhost is deleted."""
        self.by_name.clear()
        self.vhost.turn.timers.cancel(self)


def _definition(
    vhost: str,
    sink: str,
    time_ms: i64,
    batch: i64,
    queues: list[ClassicQueue],
    unroutable: str,
) -> dict[str, object]:
    """Return the decision about a batch as the journal holds it."""
    return {
        "vhost": vhost,
        "name": sink,
        "batch": int(batch),
        "time_ms": int(time_ms),
        "queues": [int(queue.queue_id) for queue in queues],
        "unroutable": unroutable,
    }
