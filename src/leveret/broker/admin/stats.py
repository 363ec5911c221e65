"""Snapshots of the model for its readers: plain values, taken at one moment.

The HTTP API and the metrics read these snapshots and nothing else of the core.  A long listing is
taken some at a time, so that no call occupies the event loop for long: `take` returns the next
entities, and leaves out those that were deleted since the listing began.

Invariants: a snapshot holds no part of the core, only numbers, texts and tables that nobody changes
(arguments never change after a declaration).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.admin.metrics import head_timestamp, persistent_share
from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.node.broker import Broker
from leveret.broker.policy.policy import effective_definition
from leveret.broker.queue.publishers import Publisher
from leveret.broker.queue.queue import Queue
from leveret.broker.staging.area import area_of
from leveret.broker.staging.release import Sink
from leveret.broker.staging.staging import StagingQueue, staging_of
from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange
from leveret.broker.values.delay import due_ms
from leveret.broker.values.queue_settings import QueueSettings
from leveret.broker.vhost.vhost import Vhost
from leveret.message import Message

#: Sinks and staging queues that a listing of sinks looks at before others have their turn.
_SINK_LOOKS: Final[i64] = 2048


@final
class QueueStats:
    """A queue or a stream; sizes are bytes of bodies and properties."""

    def __init__(self, vhost: str, queue: Queue) -> None:
        self.vhost: Final = vhost
        self.name: Final = queue.name
        self.kind: Final = queue.kind
        self.durable: Final = queue.durable
        self.exclusive: Final = queue.exclusive
        self.auto_delete: Final = queue.auto_delete
        self.arguments: Final = queue.arguments
        policy = queue.policy
        operator = queue.operator_policy
        #: The names of the policies in effect; None if there is none.
        self.policy: Final = None if policy is None else policy.name
        self.operator_policy: Final = None if operator is None else operator.name
        self.effective_policy: Final = effective_definition(policy, operator)
        self.consumer_count: Final = len(queue.consumers)
        #: True where a consumer could take a message at once.
        self.has_ready_consumer: Final = queue.consumer_order.has_ready()
        self.single_active: Final = queue.single_active
        #: The consumer that gets everything, for an exclusive or a single active one.
        self.sole_consumer: Final = _sole_consumer(queue)
        owner = queue.owner
        #: The connection of an exclusive queue; empty for others.
        self.owner: Final = "" if owner is None else owner.name
        self.memory_bytes: Final = int(queue.booked)
        self.ready_count: Final = int(queue.ready_count())
        self.ready_bytes: Final = int(queue.ready_bytes())
        self.retry_count: Final = int(queue.retry_count())
        self.retry_bytes: Final = int(queue.retry_bytes())
        #: Of those that wait, the ones in memory.
        self.memory_ready_count: Final = int(queue.memory_count())
        self.memory_ready_bytes: Final = int(queue.memory_bytes())
        #: The part of all messages that outlives a restart: an estimate, as in the metrics.
        self.persistent_share: Final = 1.0 if queue.kind == "stream" else persistent_share(queue)
        #: The timestamp of the first message (Unix epoch, seconds); None for none, or on the disk.
        self.head_timestamp: Final = _head_timestamp(queue)
        self.unacked_count: Final = int(queue.unacked_count)
        self.unacked_bytes: Final = int(queue.unacked_bytes)
        self.published: Final = int(queue.target.published)
        self.delivered: Final = int(queue.delivered)
        self.delivered_no_ack: Final = int(queue.delivered_no_ack)
        #: With acks, and without; requests that found nothing.
        self.got: Final = int(queue.got - queue.got_no_ack)
        self.got_no_ack: Final = int(queue.got_no_ack)
        self.got_nothing: Final = int(queue.got_nothing)
        self.redelivered: Final = int(queue.redelivered)
        self.acked: Final = int(queue.acked)
        self.deduplicated: Final = int(queue.target.deduplicated)
        self.rewound: Final = int(queue.rewound)
        self.retained_count: Final = int(queue.retained_count())
        self.retained_bytes: Final = int(queue.retained_bytes())
        #: How often a message may come back (below 0: without a limit), and what then delays it.
        self.delivery_limit: Final = int(queue.settings.delivery_limit)
        self.delayed_retry: Final = _delayed_retry(queue.settings)


def _delayed_retry(settings: QueueSettings) -> str:
    """Return what of that which comes back is delayed, and by how much, as RabbitMQ writes it."""
    least, most = int(settings.retry_min_ms), int(settings.retry_max_ms)
    failed, returned = settings.retries_failed, settings.retries_returned
    if least <= 0 or not (failed or returned):
        return "disabled"
    kind = "all" if failed and returned else "failed" if failed else "returned"
    return f"{kind} (min: {least}ms, max: {most if most > 0 else least}ms)"


def _head_timestamp(queue: Queue) -> int | None:
    found: i64 = head_timestamp(queue)
    return None if found < 0 else int(found)


def _sole_consumer(queue: Queue) -> str | None:
    """Return the tag of the consumer that gets all messages of a queue; None if there is none."""
    if not queue.exclusive_consumer and not queue.single_active:
        return None
    for consumer in queue.consumers:
        if queue.consumer_order.is_active(consumer):
            return consumer.tag
    return None


@final
class ExchangeStats:
    """An exchange."""

    def __init__(self, vhost: str, exchange: Exchange) -> None:
        self.vhost: Final = vhost
        self.name: Final = exchange.name
        self.kind: Final = exchange.kind
        self.durable: Final = exchange.durable
        self.auto_delete: Final = exchange.auto_delete
        self.internal: Final = exchange.internal
        self.arguments: Final = exchange.arguments
        policy = exchange.policy
        #: The name of the policy in effect; None if there is none.
        self.policy: Final = None if policy is None else policy.name
        self.published_in: Final = int(exchange.published_in)
        delayed = exchange.delayed
        self.delayed_count: Final = 0 if delayed is None else int(delayed.ready_count())


@final
class BindingStats:
    """A binding; `arguments_key` distinguishes bindings that differ only in their arguments."""

    def __init__(
        self,
        vhost: str,
        source: str,
        destination: str,
        to_queue: bool,
        binding_key: str,
        arguments: dict[str, object],
        arguments_key: bytes,
    ) -> None:
        self.vhost: Final = vhost
        self.source: Final = source
        self.destination: Final = destination
        self.to_queue: Final = to_queue
        self.binding_key: Final = binding_key
        self.arguments: Final = arguments
        self.arguments_key: Final = arguments_key


@final
class DelayedStats:
    """A delayed message; times are of the Unix epoch in ms, `id` is unique in its exchange.

    `exchange` holds the message; `source` and `routing_key` are those of its publish.
    """

    def __init__(self, vhost: str, exchange: Exchange, sequence: i64, message: Message) -> None:
        self.vhost: Final = vhost
        self.exchange: Final = exchange.name
        self.id: Final = int(sequence)
        self.due_ms: Final = int(due_ms(message))
        self.taken_ms: Final = int(message.timestamp_ms)
        self.source: Final = message.address.exchange.decode("utf-8", "surrogateescape")
        self.routing_key: Final = message.address.routing_key.decode("utf-8", "surrogateescape")
        self.bytes: Final = int(message.size)
        self.persistent: Final = message.persistent


@final
class PublisherStats:
    """A publisher that numbers its messages: the highest number in a queue, and when it came."""

    def __init__(self, name: bytes, known: Publisher) -> None:
        self.name: Final = name.decode("utf-8", "replace")
        self.number: Final = int(known.number)
        self.time_ms: Final = int(known.time_ms)
        self.owner: Final = known.owner


@final
class SinkStats:
    """A sink: its highest committed batch, when that came, and the messages in its staging queues.

    A sink that has staged and never committed has the batch -1.
    """

    def __init__(self, vhost: str, sink: Sink) -> None:
        self._sink: Final = sink
        self.vhost: Final = vhost
        self.name: Final = sink.name
        #: Empty for a sink that is identified by its name alone.
        self.destination: Final = sink.destination
        self.batch: Final = int(sink.batch)
        self.time_ms: Final = int(sink.time_ms)
        #: Batches that are committed and not fully released, and how many of their messages are
        #: left.
        self.releasing: Final = len(sink.releases)
        self.waiting = 0
        self.released: Final = int(sink.released)
        self.unroutable: Final = int(sink.unroutable)
        #: Messages, and commits, of batches that had been committed before.
        self.dropped: Final = int(sink.dropped)
        self.repeats: Final = int(sink.repeats)
        # All staged messages, committed or not; the age is that of the oldest queue, in ms.
        self.staging_queues = 0
        self.staged = 0
        self.staged_bytes = 0
        self.age_ms = 0
        self._owners: Final[set[str]] = set()
        self.owner: Final = sink.owner

    @property
    def owners(self) -> list[str]:
        """The names of those who staged."""
        return sorted(self._owners)

    def add(self, queue: StagingQueue) -> None:
        """Count one of its staging queues."""
        waiting = int(queue.ready_count())
        self.staging_queues += 1
        self.staged += waiting
        self.staged_bytes += int(queue.ready_bytes())
        self.age_ms = max(self.age_ms, int(queue.core.now_ms) - int(queue.made_ms))
        if queue.staged_by is not None:
            self._owners.add(queue.staged_by.name)
        release = queue.release
        if release is not None and release.sink is self._sink:
            self.waiting += waiting


@final
class Totals:
    """The totals of all vhosts but those of queues, which may be many (`totals`)."""

    def __init__(self, broker: Broker) -> None:
        self.connection_count: Final = len(broker.links)
        self.exchange_count: Final = sum([len(v.exchanges.by_name) for v in broker.vhosts.values()])
        self.channel_count: Final = sum([int(link.channel_count()) for link in broker.links])


def _vhosts(broker: Broker, name: str | None) -> list[Vhost]:
    """Return the vhost of a name, or all vhosts; none if the name is unknown."""
    if name is None:
        return list(broker.vhosts.values())
    vhost = broker.vhosts.get(name)
    return [] if vhost is None else [vhost]


def has_vhost(broker: Broker, name: str) -> bool:
    """Return whether a vhost exists."""
    return name in broker.vhosts


def queue_stats(broker: Broker, vhost: str, name: str) -> QueueStats | None:
    """Return the snapshot of a queue, or None if there is no such queue."""
    found = broker.vhosts.get(vhost)
    queue = None if found is None else found.queues.by_name.get(name)
    return None if queue is None else QueueStats(vhost, queue)


@final
class QueuesInTurn:
    """The queues of a vhost or of all, with their vhosts' names, some at a time; no hidden ones."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._left: Final = [
            (v.name, list(v.queues.by_name.values())) for v in reversed(_vhosts(broker, vhost))
        ]
        self._next: i64 = 0

    def take(self, count: i64) -> list[tuple[str, Queue]]:
        """Return the next `count` queues at most; an empty list at the end."""
        taken: list[tuple[str, Queue]] = []
        while len(taken) < count and self._left:
            vhost, queues = self._left[-1]
            if self._next >= len(queues):
                self._left.pop()
                self._next = 0
                continue
            queue = queues[self._next]
            self._next += 1
            if not queue.hidden and not queue.deleted:
                taken.append((vhost, queue))
        return taken


@final
class QueueListing:
    """The snapshots of the queues of a vhost or of all, some at a time."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._queues: Final = QueuesInTurn(broker, vhost)

    def take(self, count: i64) -> list[QueueStats]:
        """Return the snapshots of the next `count` queues at most; an empty list at the end."""
        return [QueueStats(vhost, queue) for vhost, queue in self._queues.take(count)]


@final
class QueueNames:
    """The names of the queues of a vhost or of all, with their vhosts', some at a time."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._queues: Final = QueuesInTurn(broker, vhost)

    def take(self, count: i64) -> list[tuple[str, str]]:
        """Return the next `count` names at most; an empty list at the end."""
        return [(vhost, queue.name) for vhost, queue in self._queues.take(count)]


@final
class ExchangeListing:
    """The exchanges of a vhost or of all, some at a time."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._left: Final = [
            (v.name, exchange)
            for v in _vhosts(broker, vhost)
            for exchange in v.exchanges.by_name.values()
        ]
        self._next: i64 = 0

    def take(self, count: i64) -> list[ExchangeStats]:
        """Return the snapshots of the next `count` exchanges at most; an empty list at the end."""
        taken: list[ExchangeStats] = []
        while len(taken) < count and self._next < len(self._left):
            vhost, exchange = self._left[self._next]
            self._next += 1
            if not exchange.deleted:
                taken.append(ExchangeStats(vhost, exchange))
        return taken


@final
class DelayedListing:
    """The delayed messages of an exchange in the order of their ids, some at a time."""

    def __init__(self, broker: Broker, vhost: str, exchange: str) -> None:
        found = broker.vhosts.get(vhost)
        self._vhost: Final = vhost
        self._exchange: Final = None if found is None else found.exchanges.by_name.get(exchange)
        store = None if self._exchange is None else self._exchange.delayed
        self._store: Final = store
        #: The id from which it goes on; 0 at the end.
        self._next: i64 = 1

    def take(self, count: i64) -> list[DelayedStats]:
        """Return the snapshots of the next `count` messages at most; an empty list at the end."""
        taken: list[DelayedStats] = []
        exchange = self._exchange
        store = self._store
        if exchange is None or store is None:
            return taken
        while not taken and self._next > 0:
            rows, self._next = store.pages.rows_from(self._next, count)
            taken = [DelayedStats(self._vhost, exchange, at, one.message) for at, one in rows]
        return taken


@final
class PublisherListing:
    """The known publishers of a queue, some at a time."""

    def __init__(self, broker: Broker, vhost: str, queue: str) -> None:
        found = broker.vhosts.get(vhost)
        named = None if found is None else found.queues.by_name.get(queue)
        self._publishers: Final = None if named is None else named.target.publishers
        publishers = self._publishers
        self._left: Final[list[bytes]] = [] if publishers is None else list(publishers.by_name)
        self._next: i64 = 0

    def take(self, count: i64) -> list[PublisherStats]:
        """Return the snapshots of the next `count` publishers at most; an empty list at the end."""
        taken: list[PublisherStats] = []
        publishers = self._publishers
        while publishers is not None and len(taken) < count and self._next < len(self._left):
            name = self._left[self._next]
            self._next += 1
            known = publishers.known(name)
            if known is not None:
                taken.append(PublisherStats(name, known))
        return taken


@final
class SinkListing:
    """The sinks of a vhost, some at a time: one sink alone may have very many staging queues.

    Those that have staged and never committed come last.
    """

    def __init__(self, broker: Broker, vhost: str) -> None:
        found = broker.vhosts.get(vhost)
        self._area: Final = None if found is None else area_of(found)
        #: True once there are no more.
        self.ended = self._area is None
        #: The sinks that are left, and the places of staging queues; None before they are listed.
        self._sinks: list[Sink] = []
        self._places: list[tuple[str, str]] | None = None
        if self._area is not None:
            self._sinks = list(self._area.sinks.by_place.values())
            self._sinks.reverse()
        #: The sink whose queues are counted, and those that are left of them.
        self._stats: SinkStats | None = None
        self._queues: list[WaitingQueue] = []

    def take(self, count: i64) -> list[SinkStats]:
        """Return the snapshots of the next `count` sinks at most.

        Before `ended` it may be that none is complete yet.
        """
        taken: list[SinkStats] = []
        looks: i64 = _SINK_LOOKS
        while looks > 0 and len(taken) < count and not self.ended:
            looks -= 1
            stats = self._stats
            if stats is None:
                self._begin_next()
            elif self._queues:
                staging = staging_of(self._queues.pop())
                if staging is not None and not staging.deleted:
                    stats.add(staging)
            else:
                taken.append(stats)
                self._stats = None
        return taken

    def _begin_next(self) -> None:
        """Begin with the next sink, if what comes next is one."""
        area = self._area
        if area is None:
            return
        if self._sinks:
            sink = self._sinks.pop()
            # Others are forgotten by now.
            if area.sinks.known(sink.name, sink.destination) is sink:
                self._stats = SinkStats(area.vhost.name, sink)
                self._queues = area.sinks.staged_of(sink)
        elif self._places is None:
            self._places = area.sinks.staged.places()
            self._places.reverse()
        elif self._places:
            name, destination = self._places.pop()
            queues = area.sinks.staged.queues_of(name, destination)
            if queues and area.sinks.known(name, destination) is None:
                self._stats = SinkStats(area.vhost.name, Sink(name, destination))
                self._queues = queues
        else:
            self.ended = True


@final
class BindingListing:
    """The bindings of a vhost or of all, some at a time; those to the default exchange first."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._queues: Final = QueueListing(broker, vhost)
        self._left: Final = [
            (v.name, binding)
            for v in _vhosts(broker, vhost)
            for exchange in v.exchanges.by_name.values()
            for binding in exchange.bindings.values()
        ]
        self._next: i64 = 0

    def take(self, count: i64) -> list[BindingStats]:
        """Return the snapshots of the next `count` bindings at most; an empty list at the end."""
        taken = [_default_binding(queue) for queue in self._queues.take(count)]
        while len(taken) < count and self._next < len(self._left):
            vhost, binding = self._left[self._next]
            self._next += 1
            if _is_bound(binding):
                taken.append(_binding_stats(vhost, binding))
        return taken


def _is_bound(binding: Binding) -> bool:
    """Return whether a binding still exists."""
    return not binding.has_ended() and binding.identity in binding.source.bindings


def _binding_stats(vhost: str, binding: Binding) -> BindingStats:
    """Return the snapshot of a binding."""
    return BindingStats(
        vhost,
        binding.source.name,
        binding.destination,
        binding.queue is not None,
        binding.binding_key,
        binding.arguments,
        binding.identity[3],
    )


def _default_binding(queue: QueueStats) -> BindingStats:
    """Return the binding of a queue to the default exchange, whose key is the queue's name."""
    return BindingStats(queue.vhost, "", queue.name, True, queue.name, {}, b"")
