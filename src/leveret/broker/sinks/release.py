"""The release of a committed batch: staged messages move to their exchanges, part by part.

Each part is one journal record, by which messages leave their staging queue and enter their queues;
the next part waits for its sync.  So after a crash each part has been moved completely or not at
all, and the batch stays in order; the next start continues with the next part.  An empty staging
queue is deleted.

Before the end of the release, a stream shows no message of the batch, and none after the batch's
first message: its readers see the whole batch or none of it.  The commit is confirmed at the end.

A release waits while the disk is nearly full, while one of the target queues is full
(`reject-publish`), and while messages that do not fit in memory are being written.  Streams do not
wait for longer than `STREAM_HELD_BACK_MS_MAX`; after that they show the batch in parts.

Invariants: nothing is released before the decision is synced; a sink releases one batch at a time,
one queue after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.cc_bcc import blind_copies, blinded, taken_keys
from leveret.broker.attributes.special_headers import COPIES, special_headers
from leveret.broker.backlog.window import NOTHING
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.ownership import Owner
from leveret.broker.queue.dead_letters import DEAD_LETTER_RETRY_MS, DeadLetter
from leveret.broker.queue.target import Destinations, Target
from leveret.broker.scheduler.accounts import ROUTE_BYTES
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST, STAGED_LETTER, STAGED_MESSAGE
from leveret.broker.scheduler.effects import Hold, SyncWaiter
from leveret.broker.scheduler.timers import Timed
from leveret.broker.sinks.heir import Heir, are_durable, can_be_copied, can_be_given, give, heir_of
from leveret.broker.vhost.vhost import Vhost
from leveret.clock import NO_DEADLINE
from leveret.limits import (
    ROUTE_TARGETS_CACHED_MAX,
    ROUTES_CACHED_MAX,
    SPILL_BYTES_MAX,
    TABLE_BYTES_PER_COST,
)
from leveret.message import Address, Message
from leveret.store.records.catalog import BATCH_START
from leveret.wire.properties import HEADERS, find_property, property_delivery_mode
from leveret.wire.staged import StagedDestination, without_staged

if TYPE_CHECKING:
    from leveret.broker.sinks.staging import StagingQueue

#: The bytes of staged messages that one journal record moves: a few ms of work and of writing.
_RELEASE_BYTES: Final = 1024 * 1024


#: The handling of unroutable messages.
FAIL: Final = "fail"
DROP_IT: Final = "drop"
DEAD_LETTER: Final = "dead-letter:"


#: The length of short properties in bytes; the two headers alone take some 80.
_SHORT_PROPERTIES: Final = 96


#: How long a stream waits for the rest of a batch, in ms, once the release waits for room: a queue
#: that another client keeps full must not hold back the readers of a stream for ever.
STREAM_HELD_BACK_MS_MAX: Final = 10_000

#: The reason in `x-death`.
UNROUTABLE: Final = "unroutable"

_PERSISTENT: Final = 2


#: The maximum number of targets in a cached route; with more, finding them costs little compared
#: with delivering.
_TARGETS_KEPT_MAX: Final = ROUTE_TARGETS_CACHED_MAX // ROUTES_CACHED_MAX


@final
class StagedRoute:
    """The route of an address, until the vhost's revision changes."""

    def __init__(self, address: Address, exchange: Exchange | None, routing_key: str) -> None:
        self.address: Final = address
        self.exchange: Final = exchange
        self.routing_key: Final = routing_key
        #: The destinations of each message without additional keys; None if not known.
        self.found: Destinations | None = None


@final
class StagedRoutes:
    """The resolved addresses of staged messages."""

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost
        self._revision: i64 = -1
        self._known: dict[tuple[bytes, bytes], StagedRoute] = {}
        #: The memory booked for the routes.
        self._booked: i64 = 0

    def find(self, staged: StagedDestination) -> StagedRoute:
        """Return the cached or new route of an address."""
        vhost = self.vhost
        if self._revision != vhost.revision or len(self._known) >= ROUTES_CACHED_MAX:
            self.clear()
            self._revision = vhost.revision
        names = (staged.exchange, staged.routing_key)
        route = self._known.get(names)
        if route is None:
            exchange = vhost.exchanges.by_name.get(
                staged.exchange.decode("utf-8", "surrogateescape")
            )
            key = staged.routing_key.decode("utf-8", "surrogateescape")
            route = StagedRoute(Address(staged.exchange, staged.routing_key), exchange, key)
            self._known[names] = route
            self._book(ROUTE_BYTES + len(staged.exchange) + len(staged.routing_key))
        return route

    def _book(self, size: i64) -> None:
        self._booked += size
        self.vhost.account.book(size)

    def clear(self) -> None:
        """Remove all routes, because nothing is routed for now."""
        self._known.clear()
        self._book(-self._booked)

    def destinations(self, route: StagedRoute, message: Message, copies: list[str]) -> Destinations:
        """Return the destinations of one message."""
        exchange = route.exchange
        if exchange is None:
            return Destinations([])
        if route.found is not None and not copies:
            return route.found
        routing = self.vhost.route(exchange, route.routing_key, message.properties, copies)
        if routing.refusal:
            # A message that would be refused as a publish, such as one whose delay is too long.
            return Destinations([])
        count: i64 = len(routing.targets)
        if not routing.dynamic and not copies and count <= _TARGETS_KEPT_MAX:
            self._book(8 * count)
            route.found = routing
        return routing


def unstaged(message: Message, route: StagedRoute, now_ms: i64) -> Message:
    """Return a staged message in the form that its publisher intended."""
    address = route.address
    message = blinded(message)
    if message.address.blind_bytes > 0:
        address = Address(address.exchange, address.routing_key, message.address.blind)
    return Message(
        address,
        without_staged(message.properties),
        message.body,
        now_ms,
        property_delivery_mode(message.properties) == _PERSISTENT,
    )


def header_cost(properties: bytes) -> i64:
    """Return the cost of reading and rewriting properties beyond short ones."""
    return max(i64(len(properties)) - _SHORT_PROPERTIES, 0) // TABLE_BYTES_PER_COST


def copies_of(message: Message) -> list[str]:
    """Return the keys of CC and BCC, which were checked when the message was staged."""
    keys = blind_copies(message.address)
    properties = message.properties
    if find_property(properties, HEADERS) >= 0 and special_headers(properties) & COPIES:
        keys = taken_keys(properties) + keys
    return keys


@final
class Sink:
    """One sink; `batch` is the highest batch that it committed, at `time_ms`."""

    def __init__(self, name: str, destination: str) -> None:
        self.name = name
        #: The destination that it writes to; empty if it has none.
        self.destination = destination
        #: True if it can also be found by its name alone.
        self.adopted = False
        #: None if an earlier release recorded it.
        self.owner: Owner | None = None
        #: The user to whom its owner offers it.
        self.offered: Owner | None = None
        #: The user to whom it is being given, with its owner's staging queues (`giving.py`).
        self.gives_to: Owner | None = None
        self.batch: i64 = -1
        self.time_ms: i64 = 0
        #: True while the queues of its batches with lower numbers are being deleted.
        self.drops_lower = False
        #: Committed batches that are not completely released, in order.
        self.releases: list[Release] = []
        # Counters since the start.
        self.released: i64 = 0
        self.unroutable: i64 = 0
        #: Messages staged for an already committed batch, and commits of such batches.
        self.dropped: i64 = 0
        self.repeats: i64 = 0

    def is_busy(self) -> bool:
        """Return whether a batch of the sink is being released, or the sink is being given away."""
        return bool(self.releases) or self.gives_to is not None


@final
class Retry(Timed):
    """A release that waits for room in a queue."""

    def __init__(self, release: Release) -> None:
        super().__init__()
        self.release = release

    def due(self, now_ms: i64) -> None:
        """Try again."""
        self.release.go_on()


@final
class Release(SyncWaiter):
    """The release of one committed batch."""

    def __init__(
        self,
        vhost: Vhost,
        sink: Sink,
        batch: i64,
        queues: list[StagingQueue],
        unroutable: str,
        at_once: bool,
    ) -> None:
        super().__init__()
        self.vhost = vhost
        self.sink = sink
        self.batch: Final[i64] = batch
        self.queues = queues
        self.unroutable = unroutable
        #: True while one queue may still take over all messages by one record (`heir.py`).
        self.at_once = at_once
        #: Queues whose messages were moved to disk for that.
        self._stored: i64 = 0
        self.head: i64 = 0
        #: Holds the commit until the end of the release.
        self.hold: Final = Hold()
        #: The streams that have received messages of the batch, which they hide until the end.
        self._streams: list[Target] = []
        #: The time from which streams show the messages they get; NO_DEADLINE before the first
        #: wait.
        self._shows_from_ms: i64 = NO_DEADLINE
        self._routes = StagedRoutes(vhost)
        self._retry: Retry | None = None
        for queue in queues:
            queue.kept = True

    def begin(self, group: i64) -> None:
        """Begin once the group with the decision is synced."""
        if group > self.vhost.core.journal.durable_group:
            self.vhost.core.syncs.wait(self, group)
        else:
            self.go_on()

    def left(self) -> list[StagingQueue]:
        """Return the queues that are not empty yet, in order."""
        return self.queues[self.head :]

    def synced(self, group: i64) -> None:
        """Continue, because the decision or the last part is synced."""
        self.go_on()

    def spilled(self) -> None:
        """Continue, because chunks were written."""
        self.go_on()

    def go_on(self) -> None:
        """Schedule the next part of the current queue."""
        if self.head < len(self.queues):
            self.queues[self.head].schedule()

    def dispatch(self, queue: StagingQueue, limit: i64) -> bool:
        """Release a part of a queue; `go_on` schedules the next part."""
        core = self.vhost.core
        if queue.deleted or self.sink.releases[0] is not self:
            return False
        if queue is not self.queues[self.head]:
            return False
        if self.waits_for != 0:
            return False
        if core.disk_short:
            if self._streams:
                self._wait()
            return False
        if core.spill.unwritten_bytes > SPILL_BYTES_MAX:
            core.wait_spilled(self)
            return False
        if self.at_once:
            return self._release_at_once()
        if queue.ready_count() == 0:
            self._end(queue)
            return False
        journal = core.journal
        journal.begin_tx()
        moved = self._move_some(queue, limit)
        journal.end_tx()
        if moved > 0:
            core.syncs.wait(self, journal.group)
        elif queue.ready_count() == 0:
            # The remaining messages were damaged on disk.
            self.go_on()
        return False

    def _release_at_once(self) -> bool:
        """Move all messages by one record; return whether this must be called again."""
        core = self.vhost.core
        if 0 < self._stored < len(self.queues):
            return self._store()
        heir = heir_of(self.vhost, self.queues)
        if heir is None:
            return self._release_in_parts()
        is_copied = can_be_copied(self.queues)
        if not is_copied:
            if self._stored == 0:
                return self._store()
            if not are_durable(self.queues):
                # Pages are dropped from memory once they are durable.
                self._stored = 0
                if core.spill.unwritten_bytes > 0:
                    core.wait_spilled(self)
                else:
                    self._wait()
                return False
            if not can_be_given(self.queues):
                return self._release_in_parts()
        core.journal.begin_tx()
        emptied = self._copy_all() if is_copied else self._give_all(heir)
        for queue in self.queues[:emptied]:
            self._drop(queue)
        core.journal.end_tx()
        if emptied < len(self.queues):
            # The others have messages that are damaged on disk.
            return self._release_in_parts()
        self._finish()
        return False

    def _store(self) -> bool:
        """Move some messages of one queue to disk; return True."""
        if not self.queues[self._stored].evict():
            self._stored += 1
        return True

    def _release_in_parts(self) -> bool:
        """Move the messages in parts from now on; return whether this must be called again."""
        self.at_once = False
        self.go_on()
        return False

    def _copy_all(self) -> i64:
        """Move the messages of all queues, one by one; return how many queues are then empty."""
        emptied: i64 = 0
        for queue in self.queues:
            while queue.ready_count() > 0:
                if self._move_some(queue, queue.ready_count()) == 0:
                    return emptied
            emptied += 1
        return emptied

    def _give_all(self, heir: Heir) -> i64:
        """Transfer the chunks of all queues to their heir; return the number of queues."""
        exchange = self._routes.find(self.queues[0].destination_of(b"")).exchange
        count = give(self.queues, heir)
        if exchange is not None:
            exchange.published_in += count
        self.sink.released += count
        return len(self.queues)

    def _move_some(self, queue: StagingQueue, limit: i64) -> i64:
        """Move messages while possible; return how many were moved."""
        core = self.vhost.core
        moved: i64 = 0
        size: i64 = 0
        # A message costs `STAGED_MESSAGE` and one for each copy: half of the limit moves at once,
        # and fewer messages with many copies.
        left: i64 = limit * (STAGED_MESSAGE + 1) // 2
        while moved < limit and size < _RELEASE_BYTES and left > 0:
            left += core.scheduler.spent
            sequence = queue.ready.first()
            returned = queue.ready.look(sequence) if sequence != NOTHING else None
            if returned is None or not self._move(queue, sequence, returned.message):
                break
            left -= core.scheduler.spent
            moved += 1
            size += returned.message.size
        return moved

    def _move(self, queue: StagingQueue, sequence: i64, message: Message) -> bool:
        """Move one message to its destinations; return False if it must wait."""
        vhost = self.vhost
        core = vhost.core
        # Counted first, because a waiting message is checked again each second.
        core.scheduler.spent += STAGED_MESSAGE + header_cost(message.properties)
        route = self._routes.find(queue.destination_of(message.properties))
        letter = unstaged(message, route, core.now_ms)
        copies = copies_of(letter)
        destinations = self._routes.destinations(route, letter, copies)
        targets = destinations.targets
        reached = destinations.reached()
        released = letter
        found: i64 = len(targets)
        if not reached and self.unroutable.startswith(DEAD_LETTER):
            name = self.unroutable[len(DEAD_LETTER) :]
            core.scheduler.spent += STAGED_LETTER + header_cost(message.properties)
            letter = DeadLetter(queue, sequence, letter, UNROUTABLE).letter_to(name)
            targets = vhost.destinations(name, letter)
        core.scheduler.spent += len(targets) // LOOKED_AT_PER_COST
        for target in targets:
            if target.checks_admission and target.is_full(letter):
                self._wait()
                return False
        for target in targets:
            if self._holds_back() and target.begin_batch(self):
                self._streams.append(target)
                core.journal.define(BATCH_START, self._start_in(target))
        if route.exchange is not None:
            route.exchange.published_in += 1
        core.scheduler.spent += len(targets)
        queue.take(sequence)
        vhost.move(queue, sequence, message, letter, targets)
        if core.events is not None:
            # As for a publish, because the staged message is published now.
            core.events.published(vhost.name, released, found, targets)
        if reached:
            self.sink.released += 1
        else:
            self.sink.unroutable += 1
        return True

    def _start_in(self, stream: Target) -> dict[str, object]:
        """Return the record of the batch's first message in a stream."""
        return {
            "id": int(stream.queue_id),
            "vhost": self.vhost.name,
            "name": self.sink.name,
            "destination": self.sink.destination,
            "batch": int(self.batch),
            "offset": int(stream.batch_start(self)),
        }

    def starts(self) -> Iterator[dict[str, object]]:
        """Yield the records of the batch's first messages in streams."""
        for stream in self._streams:
            if not stream.deleted:
                yield self._start_in(stream)

    def restore_start(self, stream: Target, offset: i64) -> None:
        """Hide a stream's messages from `offset` on until the end of the release."""
        if stream.begin_batch(self, offset):
            self._streams.append(stream)

    def _holds_back(self) -> bool:
        """Return whether streams must hide the batch until the end of its release."""
        shows_from_ms = self._shows_from_ms
        is_in_time = shows_from_ms == NO_DEADLINE or self.vhost.core.now_ms < shows_from_ms
        return is_in_time and not self.at_once

    def _show(self) -> None:
        """Make the streams show the messages of the batch that they have, and journal that."""
        self._record_shown()
        streams = self._streams
        self._streams = []
        for target in streams:
            target.end_batch(self)

    def _record_shown(self) -> None:
        """Journal that no stream hides the batch any longer."""
        for start in self.starts():
            self.vhost.core.journal.delete(BATCH_START, start)

    def _wait(self) -> None:
        """Try again later, because a queue or the disk is full, or a checkpoint writes chunks."""
        # Thousands of batches may wait, each with routes to thousands of queues.
        self._routes.clear()
        if self._retry is None:
            self._retry = Retry(self)
        core = self.vhost.core
        core.timers.set(self._retry, core.now_ms + DEAD_LETTER_RETRY_MS)
        if self._streams and self._shows_from_ms == NO_DEADLINE:
            self._shows_from_ms = core.now_ms + STREAM_HELD_BACK_MS_MAX
        elif not self._holds_back():
            self._show()

    def end(self) -> None:
        """Free the routes and the timer, because everything is released or the vhost is deleted."""
        self._routes.clear()
        if self._retry is not None:
            # The two refer to each other.
            self.vhost.core.timers.cancel(self._retry)
            self._retry = None
        for target in self._streams:
            target.end_batch(self)
        self._streams = []
        self.hold.end()

    def _end(self, queue: StagingQueue) -> None:
        """Delete an empty queue, and continue with the next one, or the next batch."""
        journal = self.vhost.core.journal
        journal.begin_tx()
        self._drop(queue)
        is_last: bool = self.head == len(self.queues)
        if is_last:
            self._record_shown()
        journal.end_tx()
        if is_last:
            self._finish()
        else:
            self.go_on()

    def _drop(self, queue: StagingQueue) -> None:
        """Delete an empty queue."""
        queue.kept = False
        self.head += 1
        self.vhost.queues.drop(queue)

    def _finish(self) -> None:
        """Begin the release of the next batch, because this one is released."""
        self.end()
        self.sink.time_ms = max(self.sink.time_ms, self.vhost.core.now_ms)
        releases = self.sink.releases
        del releases[0]
        if releases:
            releases[0].go_on()
