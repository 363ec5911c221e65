"""Snapshots of the broker's state: plain values, taken at one moment.

The HTTP API and the metrics read these snapshots and nothing else of the core.  A listing is an
iterator, so that no call occupies the event loop for long.  It omits objects deleted since it
began.

Invariants: a snapshot contains no objects of the core, only numbers, strings and tables that never
change (arguments never change after a declare).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.delay import due_ms
from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.broker import Broker
from leveret.broker.counters import QueueCounts
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.policies.policy import effective_definition
from leveret.broker.publishers.publishers import PublisherProgress
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.staging import StagingQueue, staging_of
from leveret.broker.stats.metrics import head_timestamp, persistent_share
from leveret.broker.vhost.vhost import Vhost
from leveret.message import Message

#: The maximum number of delayed messages looked up at once.
_DELAYED_AT_ONCE: Final = 100

#: The staging queues of a sink examined at once.
_STAGED_AT_ONCE: Final = 8


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
        #: The names of the policies in effect, or None.
        self.policy: Final = None if policy is None else policy.name
        self.operator_policy: Final = None if operator is None else operator.name
        self.effective_policy: Final = effective_definition(policy, operator)
        self.consumer_count: Final = len(queue.consumers)
        #: True if a consumer could take a message at once.
        self.has_ready_consumer: Final = queue.consumer_order.has_ready()
        self.single_active: Final = queue.single_active
        #: The tag of the exclusive or single active consumer.
        self.sole_consumer: Final = _sole_consumer(queue)
        owner = queue.owner
        #: The connection of an exclusive queue, or "" for others.
        self.owner: Final = "" if owner is None else owner.name
        self.memory_bytes: Final = int(queue.booked)
        self.ready_count: Final = int(queue.ready_count())
        self.ready_bytes: Final = int(queue.ready_bytes())
        self.retry_count: Final = int(queue.retry_count())
        self.retry_bytes: Final = int(queue.retry_bytes())
        #: The ready messages in memory.
        self.memory_ready_count: Final = int(queue.memory_count())
        self.memory_ready_bytes: Final = int(queue.memory_bytes())
        #: The estimated share of messages that survives a restart, as in the metrics.
        self.persistent_share: Final = 1.0 if queue.kind == "stream" else persistent_share(queue)
        #: The timestamp of the first message (Unix epoch, seconds), or None if none or on disk.
        head = head_timestamp(queue)
        self.head_timestamp: Final = int(head) if head >= 0 else None
        self.unacked_count: Final = int(queue.unacked_count)
        self.unacked_bytes: Final = int(queue.unacked_bytes)
        self.done: Final = QueueCounts()
        queue.add_counts(self.done)
        self.deduplicated: Final = int(queue.target.deduplicated)
        self.rewound: Final = int(queue.rewound)
        self.retained_count: Final = int(queue.retained_count())
        self.retained_bytes: Final = int(queue.retained_bytes())
        #: The number of times a message may be returned (negative: no limit), and the retry delay.
        self.delivery_limit: Final = int(queue.settings.delivery_limit)
        self.delayed_retry: Final = _delayed_retry(queue.settings)


def _delayed_retry(settings: QueueSettings) -> str:
    """Return the type and the times of delayed retry, in RabbitMQ's format."""
    least, most = int(settings.retry_min_ms), int(settings.retry_max_ms)
    failed, returned = settings.retries_failed, settings.retries_returned
    if least <= 0 or not (failed or returned):
        return "disabled"
    kind = "all" if failed and returned else "failed" if failed else "returned"
    return f"{kind} (min: {least}ms, max: {most if most > 0 else least}ms)"


def _sole_consumer(queue: Queue) -> str | None:
    """Return the tag of the consumer that receives all messages of a queue, or None."""
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
        #: The name of the policy in effect, or None.
        self.policy: Final = None if policy is None else policy.name
        self.published_in: Final = int(exchange.published_in)


@final
class DelayedStats:
    """A delayed message; times are of the Unix epoch in ms, `id` is unique in its exchange.

    `exchange` delays the message; `source` and `routing_key` are those of its publish.
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
    """A publisher with deduplication: its highest number in a queue, and the time it arrived."""

    def __init__(self, name: bytes, known: PublisherProgress) -> None:
        self.name: Final = name.decode("utf-8", "replace")
        self.number: Final = int(known.number)
        self.time_ms: Final = int(known.time_ms)
        self.owner: Final = known.owner


@final
class SinkStats:
    """A sink: its highest committed batch, the time of that commit, and its staged messages.

    The batch is -1 for a sink that has never committed.
    """

    def __init__(self, vhost: str, sink: Sink) -> None:
        self._sink: Final = sink
        self.vhost: Final = vhost
        self.name: Final = sink.name
        #: Empty for a sink that is identified by its name alone.
        self.destination: Final = sink.destination
        self.batch: Final = int(sink.batch)
        self.time_ms: Final = int(sink.time_ms)
        #: Committed batches that are not fully released, and the number of their remaining
        #: messages.
        self.releasing: Final = len(sink.releases)
        self.waiting = 0
        self.released: Final = int(sink.released)
        self.unroutable: Final = int(sink.unroutable)
        #: Messages and commits of batches that were already committed.
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
        """The names of the users of the staging queues."""
        return sorted(self._owners)

    def add(self, queue: StagingQueue) -> None:
        """Count one of the sink's staging queues."""
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
class VhostTotals:
    """Totals over all vhosts, except for queues, which may be many (see `totals`)."""

    def __init__(self, broker: Broker) -> None:
        self.connection_count: Final = len(broker.links)
        self.exchange_count: Final = sum([len(v.exchanges.by_name) for v in broker.vhosts.values()])
        self.channel_count: Final = sum([int(link.channel_count()) for link in broker.links])


def vhosts_of(broker: Broker, name: str | None) -> list[Vhost]:
    """Return the vhost of that name as a list, empty if it is unknown; or all vhosts for None."""
    if name is None:
        return list(broker.vhosts.values())
    vhost = broker.vhosts.get(name)
    return [] if vhost is None else [vhost]


def find_queue(broker: Broker, vhost: str, name: str) -> Queue | None:
    """Return a queue, or None if there is no such queue."""
    found = broker.vhosts.get(vhost)
    return None if found is None else found.queues.by_name.get(name)


def queue_stats(broker: Broker, vhost: str, name: str) -> QueueStats | None:
    """Return the snapshot of a queue, or None if there is no such queue."""
    queue = find_queue(broker, vhost, name)
    return None if queue is None else QueueStats(vhost, queue)


def queues_in_turn(broker: Broker, vhost: str | None) -> Iterator[tuple[str, Queue]]:
    """Yield the names of vhosts and their queues, without hidden queues."""
    for found in vhosts_of(broker, vhost):
        for queues in found.queues.by_name.in_parts():
            for queue in queues:
                if not queue.hidden and not queue.deleted:
                    yield found.name, queue


def queue_rows(broker: Broker, vhost: str | None) -> Iterator[QueueStats]:
    """Yield the queues of a vhost or of all vhosts."""
    for name, queue in queues_in_turn(broker, vhost):
        yield QueueStats(name, queue)


def queue_names(broker: Broker, vhost: str | None) -> Iterator[tuple[str, str]]:
    """Yield the names of vhosts and their queues."""
    for name, queue in queues_in_turn(broker, vhost):
        yield name, queue.name


def exchange_rows(broker: Broker, vhost: str | None) -> Iterator[ExchangeStats]:
    """Yield the exchanges of a vhost or of all vhosts."""
    listed = [(v.name, list(v.exchanges.by_name.values())) for v in vhosts_of(broker, vhost)]
    for name, exchanges in listed:
        for exchange in exchanges:
            if not exchange.deleted:
                yield ExchangeStats(name, exchange)


def delayed_rows(vhost: str, exchange: Exchange) -> Iterator[DelayedStats]:
    """Yield the delayed messages of an exchange in the order of their ids."""
    store = exchange.delayed
    at: i64 = 1
    while store is not None and at > 0:
        rows, at = store.pages.rows_from(at, _DELAYED_AT_ONCE)
        for sequence, delayed in rows:
            yield DelayedStats(vhost, exchange, sequence, delayed.message)


def publisher_rows(queue: Queue) -> Iterator[PublisherStats]:
    """Yield the known publishers of a queue."""
    publishers = queue.target.publishers
    for name in [] if publishers is None else list(publishers.by_name):
        known = None if publishers is None else publishers.known(name)
        if known is not None:
            yield PublisherStats(name, known)


def sink_rows(vhost: Vhost) -> Iterator[SinkStats | None]:
    """Yield the sinks of a vhost, and None to pause if a sink has very many staging queues.

    Sinks that have staged messages but never committed come last.
    """
    sinks = area_of(vhost).sinks
    for sink in list(sinks.by_place.values()):
        # The sink may have been forgotten since.
        if sinks.known(sink.name, sink.destination) is sink:
            yield from _sink_row(SinkStats(vhost.name, sink), sinks.staged_of(sink))
    for name, destination in sinks.staged.places():
        queues = sinks.staged.queues_of(name, destination)
        if queues and sinks.known(name, destination) is None:
            yield from _sink_row(SinkStats(vhost.name, Sink(name, destination)), queues)


def _sink_row(stats: SinkStats, queues: list[WaitingQueue]) -> Iterator[SinkStats | None]:
    for place, queue in enumerate(queues, 1):
        staging = staging_of(queue)
        if staging is not None and not staging.deleted:
            stats.add(staging)
        if place % _STAGED_AT_ONCE == 0:
            yield None
    yield stats
