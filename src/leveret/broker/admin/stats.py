"""Snapshots of the model for those who show it: plain values, taken at one moment.

Whoever shows the broker (the HTTP API, metrics) reads these and nothing else of the core.  A long
listing is taken in slices, so that no call holds the loop: `take` gives the next ones, and what was
deleted since the listing began is left out.

Invariants: a snapshot holds no part of the core, only numbers, texts and tables that nobody changes
(arguments are never changed after a declaration).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.node.broker import Broker
from leveret.broker.policy.policy import effective_definition
from leveret.broker.queue.publishers import Publisher
from leveret.broker.queue.queue import Queue
from leveret.broker.staging.area import StagingArea, area_of
from leveret.broker.staging.release import Sink
from leveret.broker.staging.staging import staging_of
from leveret.broker.topology.binding import Binding
from leveret.broker.topology.exchange import Exchange
from leveret.broker.values.delay import due_ms
from leveret.broker.vhost.vhost import Vhost
from leveret.message import Message


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
        #: The policies that count for it; None for none.
        self.policy: Final = None if policy is None else policy.name
        self.operator_policy: Final = None if operator is None else operator.name
        self.effective_policy: Final = effective_definition(policy, operator)
        self.consumer_count: Final = len(queue.consumers)
        self.ready_count: Final = int(queue.ready_count())
        self.ready_bytes: Final = int(queue.ready_bytes())
        self.retry_count: Final = int(queue.retry_count())
        self.retry_bytes: Final = int(queue.retry_bytes())
        self.unacked_count: Final = int(queue.unacked_count)
        self.unacked_bytes: Final = int(queue.unacked_bytes)
        self.published: Final = int(queue.published)
        self.delivered: Final = int(queue.delivered)
        self.delivered_no_ack: Final = int(queue.delivered_no_ack)
        self.got: Final = int(queue.got)
        self.redelivered: Final = int(queue.redelivered)
        self.acked: Final = int(queue.acked)
        self.deduplicated: Final = int(queue.deduplicated)
        self.rewound: Final = int(queue.rewound)
        self.retained_count: Final = int(queue.retained_count())
        self.retained_bytes: Final = int(queue.retained_bytes())


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
        #: The policy that counts for it; None for none.
        self.policy: Final = None if policy is None else policy.name
        self.published_in: Final = int(exchange.published_in)
        delayed = exchange.delayed
        self.delayed_count: Final = 0 if delayed is None else int(delayed.ready_count())


@final
class BindingStats:
    """A binding; `arguments_key` tells apart those that differ in their arguments only."""

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
    """A delayed message: `due_ms` and `taken_ms` are of the Unix epoch, `id` is its exchange's.

    `exchange` keeps it; `source` and `routing_key` are what it was published to.
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
    """A publisher that numbers its messages: its highest number in a queue, and its last time."""

    def __init__(self, name: bytes, known: Publisher) -> None:
        self.name: Final = name.decode("utf-8", "replace")
        self.number: Final = int(known.number)
        self.time_ms: Final = int(known.time_ms)
        self.owner: Final = known.owner


@final
class SinkStats:
    """A sink: its highest committed batch, when it came, and what waits in its staging queues.

    One that has staged and never committed has the batch -1.
    """

    def __init__(self, vhost: str, sink: Sink, queues: list[ClassicQueue]) -> None:
        self.vhost: Final = vhost
        self.name: Final = sink.name
        #: Empty for a sink that is its name alone.
        self.destination: Final = sink.destination
        self.batch: Final = int(sink.batch)
        self.time_ms: Final = int(sink.time_ms)
        #: Batches that are committed and not all released, and the messages left of them.
        self.releasing: Final = len(sink.releases)
        self.waiting: Final = int(sink.waiting())
        self.released: Final = int(sink.released)
        self.unroutable: Final = int(sink.unroutable)
        #: Messages, and commits, of batches that were committed before.
        self.dropped: Final = int(sink.dropped)
        self.repeats: Final = int(sink.repeats)
        # What is staged, committed or not; the age is that of the oldest queue, in ms.
        self.staging_queues: Final = len(queues)
        self.staged: Final = sum([int(queue.ready_count()) for queue in queues])
        self.staged_bytes: Final = sum([int(queue.ready_bytes()) for queue in queues])
        found = [staging_of(queue) for queue in queues]
        stagings = [staging for staging in found if staging is not None]
        ages = [max(0, int(one.queue.turn.now_ms) - int(one.made_ms)) for one in stagings]
        self.age_ms: Final = max(ages, default=0)
        self.owners: Final = sorted({one.owner.name for one in stagings if one.owner is not None})
        self.owner: Final = sink.owner


@final
class Totals:
    """What there is in all vhosts together."""

    def __init__(self, broker: Broker) -> None:
        self.connection_count: Final = len(broker.links)
        self.exchange_count: Final = sum([len(v.exchanges.by_name) for v in broker.vhosts.values()])
        self.queue_count: Final = sum(
            [
                len([queue for queue in v.queues.by_name.values() if not queue.hidden])
                for v in broker.vhosts.values()
            ]
        )


def _vhosts(broker: Broker, name: str | None) -> list[Vhost]:
    """Return the vhost of a name, or all; none for a name that is not there."""
    if name is None:
        return list(broker.vhosts.values())
    vhost = broker.vhosts.get(name)
    return [] if vhost is None else [vhost]


def has_vhost(broker: Broker, name: str) -> bool:
    """Tell whether there is such a vhost."""
    return name in broker.vhosts


def queue_stats(broker: Broker, vhost: str, name: str) -> QueueStats | None:
    """Return a queue's snapshot; None where there is no such queue."""
    found = broker.vhosts.get(vhost)
    queue = None if found is None else found.queues.by_name.get(name)
    return None if queue is None else QueueStats(vhost, queue)


@final
class QueueListing:
    """The queues of a vhost or of all but hidden ones, in slices."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._left: Final = [
            (v.name, queue)
            for v in _vhosts(broker, vhost)
            for queue in v.queues.by_name.values()
            if not queue.hidden
        ]
        self._next: i64 = 0

    def take(self, count: i64) -> list[QueueStats]:
        """Return the snapshots of the next `count` queues at most; none at the end."""
        taken: list[QueueStats] = []
        while len(taken) < count and self._next < len(self._left):
            vhost, queue = self._left[self._next]
            self._next += 1
            if not queue.deleted:
                taken.append(QueueStats(vhost, queue))
        return taken


@final
class ExchangeListing:
    """The exchanges of a vhost or of all, in slices."""

    def __init__(self, broker: Broker, vhost: str | None) -> None:
        self._left: Final = [
            (v.name, exchange)
            for v in _vhosts(broker, vhost)
            for exchange in v.exchanges.by_name.values()
        ]
        self._next: i64 = 0

    def take(self, count: i64) -> list[ExchangeStats]:
        """Return the snapshots of the next `count` exchanges at most; none at the end."""
        taken: list[ExchangeStats] = []
        while len(taken) < count and self._next < len(self._left):
            vhost, exchange = self._left[self._next]
            self._next += 1
            if not exchange.deleted:
                taken.append(ExchangeStats(vhost, exchange))
        return taken


@final
class DelayedListing:
    """The delayed messages of an exchange in the order of their ids, in slices."""

    def __init__(self, broker: Broker, vhost: str, exchange: str) -> None:
        found = broker.vhosts.get(vhost)
        self._vhost: Final = vhost
        self._exchange: Final = None if found is None else found.exchanges.by_name.get(exchange)
        store = None if self._exchange is None else self._exchange.delayed
        self._store: Final = store
        self._left: Final[list[i64]] = [] if store is None else list(store.messages)
        self._next: i64 = 0

    def take(self, count: i64) -> list[DelayedStats]:
        """Return the snapshots of the next `count` messages at most; none at the end."""
        taken: list[DelayedStats] = []
        exchange = self._exchange
        store = self._store
        if exchange is None or store is None:
            return taken
        while len(taken) < count and self._next < len(self._left):
            sequence = self._left[self._next]
            self._next += 1
            message = store.messages.get(sequence)
            if message is not None:
                taken.append(DelayedStats(self._vhost, exchange, sequence, message))
        return taken


@final
class PublisherListing:
    """The publishers of a queue that are not forgotten, in slices."""

    def __init__(self, broker: Broker, vhost: str, queue: str) -> None:
        found = broker.vhosts.get(vhost)
        named = None if found is None else found.queues.by_name.get(queue)
        self._publishers: Final = None if named is None else named.publishers
        publishers = self._publishers
        self._left: Final[list[bytes]] = [] if publishers is None else list(publishers.by_name)
        self._next: i64 = 0

    def take(self, count: i64) -> list[PublisherStats]:
        """Return the snapshots of the next `count` publishers at most; none at the end."""
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
    """The sinks of a vhost, in slices."""

    def __init__(self, broker: Broker, vhost: str) -> None:
        found = broker.vhosts.get(vhost)
        self._area: Final = None if found is None else area_of(found)
        self._left: Final = [] if self._area is None else _sinks(self._area)
        self._next: i64 = 0

    def take(self, count: i64) -> list[SinkStats]:
        """Return the snapshots of the next `count` sinks at most; none at the end."""
        taken: list[SinkStats] = []
        while len(taken) < count and self._next < len(self._left):
            sink = self._left[self._next]
            self._next += 1
            if self._area is not None:
                queues = self._area.staged_of(sink)
                if sink.batch < 0:
                    queues = _of_nobody(self._area, sink)
                taken.append(SinkStats(self._area.vhost.name, sink, queues))
        return taken


def _sinks(area: StagingArea) -> list[Sink]:
    """Return the sinks of a vhost, and such that have staged and never committed."""
    found = list(area.sinks.by_place.values())
    new: dict[tuple[str, str], Sink] = {}
    for name, queues in area.sinks.staged.items():
        for queue in queues.values():
            staging = staging_of(queue)
            if staging is not None:
                place = (name, staging.destination)
                if area.sinks.known(name, place[1]) is None and place not in new:
                    new[place] = Sink(name, place[1])
    return found + list(new.values())


def _of_nobody(area: StagingArea, sink: Sink) -> list[ClassicQueue]:
    """Return the staging queues of a sink that never committed."""
    found: list[ClassicQueue] = []
    for queue in area.sinks.staged.get(sink.name, {}).values():
        staging = staging_of(queue)
        if staging is not None and staging.destination == sink.destination:
            found.append(queue)
    return found


@final
class BindingListing:
    """The bindings of a vhost or of all, in slices: of each queue to the default exchange first."""

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
        """Return the snapshots of the next `count` bindings at most; none at the end."""
        taken = [_default_binding(queue) for queue in self._queues.take(count)]
        while len(taken) < count and self._next < len(self._left):
            vhost, binding = self._left[self._next]
            self._next += 1
            if _is_bound(binding):
                taken.append(_binding_stats(vhost, binding))
        return taken


def _is_bound(binding: Binding) -> bool:
    """Tell whether a binding is still there."""
    return not binding.source.deleted and binding.identity in binding.source.bindings


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
    """Return the binding that each queue has to the default exchange, under its name."""
    return BindingStats(queue.vhost, "", queue.name, True, queue.name, {}, b"")
