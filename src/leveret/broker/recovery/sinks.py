"""Restores sinks: the highest batch of each sink, and its batches that were not released.

A decision names its staging queues by their ids.  Queues that no longer exist were released and
then deleted; the release of the others continues.

A record of an older release has no destination.  The sink is identified by its name alone, until a
record says that a destination has adopted it.

If a sink was being given to another user, the transfer of the sink and all its staging queues is
completed.

Invariant: the last decision replayed is the newest one of its sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.ownership import Owner, recorded_owner
from leveret.broker.sinks.area import GIVES_TO, area_of
from leveret.broker.sinks.giving import give_later
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.staging import StagingQueue, staging_of
from leveret.store.records.fields import number, text

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.vhost.vhost import Vhost


@final
class RestoredSink:
    """The recorded state of one sink: its batches with the remaining ids of their queues."""

    def __init__(self) -> None:
        self.batch: i64 = -1
        self.time_ms: i64 = 0
        self.adopted = False
        #: None until a record has one; earlier releases recorded none.
        self.owner: Owner | None = None
        #: The user to whom the sink was being given.
        self.gives_to: Owner | None = None
        self.decisions: dict[int, tuple[list[int], str, bool]] = {}
        #: By batch: the ids of streams, and where the messages of the batch begin in them.
        self.starts: dict[int, dict[int, int]] = {}


@final
class LearnedSinks:
    """The known sinks of all vhosts."""

    def __init__(self) -> None:
        #: By vhost, name and destination.
        self._sinks: dict[tuple[str, str, str], RestoredSink] = {}

    def define(self, definition: dict[str, object]) -> None:
        """Add a decision."""
        place = _place(definition)
        sink = self._sinks.get(place)
        adopted = definition.get("adopted") is True
        nameless = self._sinks.pop((place[0], place[1], ""), None) if adopted else None
        if sink is None:
            sink = nameless or RestoredSink()
        elif nameless is not None:
            # The destination is known from a later snapshot, or from a sink that expired.
            sink.decisions.update(nameless.decisions)
        self._sinks[place] = sink
        sink.adopted = adopted
        batch = number(definition, "batch")
        sink.batch = batch
        sink.time_ms = number(definition, "time_ms")
        sink.owner = recorded_owner(definition)
        sink.gives_to = recorded_owner(definition, GIVES_TO)
        listed = definition.get("queues")
        ids = [one for one in listed if isinstance(one, int)] if isinstance(listed, list) else []
        if ids:
            # A repeated decision moves to the end, because decisions are in the order of records.
            sink.decisions.pop(batch, None)
            at_once = definition.get("at_once") is True
            sink.decisions[batch] = (ids, text(definition, "unroutable"), at_once)

    def delete(self, definition: dict[str, object]) -> None:
        """Remove a sink."""
        self._sinks.pop(_place(definition), None)

    def begin(self, definition: dict[str, object]) -> None:
        """Add the place where a batch begins in a stream."""
        sink = self._sinks.get(_place(definition))
        if sink is not None:
            starts = sink.starts.setdefault(number(definition, "batch"), {})
            starts[number(definition, "id")] = number(definition, "offset")

    def end(self, definition: dict[str, object]) -> None:
        """Remove the place where a released batch began in a stream."""
        sink = self._sinks.get(_place(definition))
        if sink is not None:
            sink.starts.pop(number(definition, "batch"), None)

    def forget_vhost(self, name: str) -> None:
        """Remove the sinks of a vhost."""
        for place in list(self._sinks):
            if place[0] == name:
                del self._sinks[place]

    def finish(self, broker: Broker) -> None:
        """Add the sinks to their vhosts, after the queues are restored."""
        staged: dict[str, dict[i64, StagingQueue]] = {}
        for (vhost_name, name, destination), sink in self._sinks.items():
            vhost = broker.vhosts.get(vhost_name)
            if vhost is None:
                continue
            if vhost_name not in staged:
                staged[vhost_name] = _staged(vhost)
            queues = staged[vhost_name]
            releases: list[tuple[i64, list[StagingQueue], str, bool]] = []
            for batch, (ids, unroutable, at_once) in sink.decisions.items():
                left = [queues[queue_id] for queue_id in ids if queue_id in queues]
                if left:
                    releases.append((batch, left, unroutable, at_once))
            known = Sink(name, destination)
            known.adopted = sink.adopted
            known.owner = sink.owner
            known.batch = sink.batch
            known.time_ms = sink.time_ms
            area = area_of(vhost)
            area.restore(known, releases)
            _restore_starts(vhost, known, sink)
            if sink.gives_to is not None:
                give_later(area, known, sink.gives_to)


def _restore_starts(vhost: Vhost, sink: Sink, restored: RestoredSink) -> None:
    """Hide the messages of batches that are still being released into streams."""
    for release in sink.releases:
        starts = restored.starts.get(int(release.batch))
        if starts is None:
            continue
        for queue in vhost.queues.by_name.values():
            offset = starts.get(int(queue.queue_id))
            if offset is not None:
                release.restore_start(queue.target, offset)


def _staged(vhost: Vhost) -> dict[i64, StagingQueue]:
    """Return the staging queues of a vhost by their ids."""
    found: dict[i64, StagingQueue] = {}
    for queue in vhost.queues.by_name.values():
        staging = staging_of(queue)
        if staging is not None:
            found[staging.queue_id] = staging
    return found


def _place(definition: dict[str, object]) -> tuple[str, str, str]:
    """Return the vhost, the name and the destination of the sink of a record."""
    return (
        text(definition, "vhost"),
        text(definition, "name"),
        text(definition, "destination"),
    )
