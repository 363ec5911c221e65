"""The values of `/metrics`: the totals of one broker, by series."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Container, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from leveret import __version__
from leveret.broker.counters import SIZE_CLASSES, QueueCounts
from leveret.management.metrics import series as table
from leveret.management.metrics.series import MetricSeries
from leveret.management.metrics.text import Histogram, Sample, clean, histogram, pieces
from leveret.management.metrics.totals import Scrapes, WalkTotals, resident_bytes
from leveret.store.io_counts import SYNC_CLASSES_NS
from leveret.wire.buffer import BUILD

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.stats.metrics import QueueLevels
    from leveret.session.metrics import ChannelLevels

#: The only value of the label `protocol`, as RabbitMQ names it.
_AMQP: Final = ("amqp091",)

#: The queue types as RabbitMQ's metrics name them.
QUEUE_TYPES: Final = {
    "classic": "rabbit_classic_queue",
    "quorum": "rabbit_quorum_queue",
    "stream": "rabbit_stream_queue",
}

#: The dead-letter strategies that each queue type can have.
_STRATEGIES: Final = {
    "classic": ("disabled", "at_most_once", "at_least_once"),
    "quorum": ("disabled", "at_most_once", "at_least_once"),
}

#: The upper bounds of the message size buckets, as dashboards spell them.
_SIZE_ENDS: Final = (
    "100.0",
    "1000.0",
    "10000.0",
    "100000.0",
    "1e+06",
    "1e+07",
    "5e+07",
    "1e+08",
)
assert len(_SIZE_ENDS) == len(SIZE_CLASSES)

#: The version of the library that formats numbers; looked up once, because that reads a file.
_LIBRARY_VERSION: Final = version("prometheus-client")

_SYNC_ENDS: Final = tuple(str(end / 1e9) for end in SYNC_CLASSES_NS)

_NS: Final = 1e9

#: The values of the label `rabbitmq_endpoint`, one for each path.
AGGREGATED: Final = "aggregated"
PER_OBJECT: Final = "per-object"
DETAILED: Final = "detailed"
MEMORY: Final = "memory-breakdown"

Values = dict[str, list[Sample]]


def aggregated(
    broker: Broker,
    scrapes: Scrapes,
    counts: Mapping[str, int],
    totals: WalkTotals,
    prefix: str,
    endpoint: str,
) -> Iterator[bytes]:
    """Yield the text of all series, in pieces of one series or some hundred samples.

    `counts` are the counters of the sockets (`Operator.counts`).  For the endpoint `per-object`,
    series with an entry for each object are omitted.
    """
    values = all_values(broker, scrapes, counts, totals, endpoint)
    # All values are taken at the same moment, before the answer begins.
    return _texts(broker, values, prefix, table.OF_OBJECTS if endpoint == PER_OBJECT else ())


def all_values(
    broker: Broker,
    scrapes: Scrapes,
    counts: Mapping[str, int],
    totals: WalkTotals,
    endpoint: str,
) -> Values:
    """Return the values of all series except histograms; per-object series are summed."""
    return {
        **_node_values(broker, scrapes, counts, endpoint),
        **_global_values(broker, totals),
        **_object_values(broker, totals),
        **_own_values(broker, counts, totals),
    }


def _texts(broker: Broker, values: Values, prefix: str, apart: Container[str]) -> Iterator[bytes]:
    for one in table.AGGREGATED.values():
        if one.name in apart:
            continue
        if one.kind == table.HISTOGRAM:
            yield _histogram(broker, one, prefix)
        elif one.name in values:
            samples = values[one.name]
            # A per-object series is summed here, without the labels of objects.
            labels = one.labels if samples and samples[0][0] else ()
            yield from pieces(one, prefix, samples, labels)


def _histogram(broker: Broker, one: MetricSeries, prefix: str) -> bytes:
    core = broker.core
    if one.name == "message_size_bytes":
        sizes = core.sizes
        found = Histogram(_SIZE_ENDS, sizes.classes(), int(sizes.bytes))
        return histogram(one, prefix, {"protocol": "amqp091"}, found)
    io = core.io
    return histogram(
        one, prefix, {}, Histogram(_SYNC_ENDS, list(io.sync_classes), int(io.sync_ns) / _NS)
    )


def _one(value: float) -> list[Sample]:
    return [((), value)]


def node_name() -> str:
    """Return the name of the node, which consists of product and host as in RabbitMQ."""
    return f"leveret@{socket.gethostname()}"


def identity(broker: Broker, endpoint: str) -> list[Sample]:
    """Return the identity of the broker, which every panel of RabbitMQ's dashboards needs."""
    node = node_name()
    named = broker.parameters.global_values.get("cluster_name")
    cluster = named if isinstance(named, str) else node
    permanent = f"rabbitmq-cluster-id-{broker.core.counts.identity}"
    return [((node, cluster, permanent, endpoint), 1)]


def _node_values(
    broker: Broker, scrapes: Scrapes, counts: Mapping[str, int], endpoint: str
) -> Values:
    """Return the values of the node."""
    core = broker.core
    told = core.counts
    build = (
        scrapes.version,
        f"Python {platform.python_version()}",
        scrapes.version,
        _LIBRARY_VERSION,
        "Leveret",
        __version__,
        BUILD,
    )
    numbers: dict[str, float] = {
        "erlang_uptime_seconds": scrapes.uptime_seconds(),
        "process_start_time_seconds": time.time() - scrapes.uptime_seconds(),
        "connections": int(told.connections_opened - told.connections_closed),
        "channels": int(told.channels_opened - told.channels_closed),
        "connections_opened_total": int(told.connections_opened),
        "connections_closed_total": int(told.connections_closed),
        "channels_opened_total": int(told.channels_opened),
        "channels_closed_total": int(told.channels_closed),
        "queues_declared_total": int(told.queues_declared),
        "queues_created_total": int(told.queues_created),
        "queues_deleted_total": int(told.queues_deleted),
        "process_resident_memory_bytes": resident_bytes(),
        "resident_memory_limit_bytes": int(broker.memory_bytes_max),
        "disk_space_available_bytes": int(broker.disk_free_bytes),
        "disk_space_available_limit_bytes": int(broker.disk_free_bytes_min),
        "process_open_fds": counts.get("fd_used", 0),
        "process_max_fds": counts.get("fd_total", 0),
        "process_open_tcp_sockets": counts.get("sockets_used", 0),
        "process_max_tcp_sockets": counts.get("sockets_total", 0),
        "alarms_memory_used_watermark": broker.memory_alarm or broker.forced_alarm,
        "alarms_free_disk_space_watermark": broker.disk_alarm,
        "alarms_file_descriptor_limit": _is_full(counts),
        **_io_numbers(broker),
    }
    found = {name: _one(float(number)) for name, number in numbers.items()}
    found["identity_info"] = identity(broker, endpoint)
    found["build_info"] = [(build, 1)]
    found.update(_logins(counts))
    return found


def _is_full(counts: Mapping[str, int]) -> bool:
    most = counts.get("sockets_total", 0)
    return 0 < most <= counts.get("sockets_used", 0)


def _logins(counts: Mapping[str, int]) -> Values:
    right: list[Sample] = []
    wrong: list[Sample] = []
    every: list[Sample] = []
    for name, protocol in (("amqp", "amqp091"), ("http", "http")):
        accepted = counts.get(f"{name}_logins_accepted", 0)
        refused = counts.get(f"{name}_logins_refused", 0)
        right.append(((protocol,), accepted))
        wrong.append(((protocol,), refused))
        every.append(((protocol,), accepted + refused))
    return {
        "auth_attempts_total": every,
        "auth_attempts_succeeded_total": right,
        "auth_attempts_failed_total": wrong,
    }


def _io_numbers(broker: Broker) -> dict[str, float]:
    io = broker.core.io
    reader = broker.core.reader
    return {
        "io_read_ops_total": int(reader.reads),
        "io_read_bytes_total": int(reader.bytes_read),
        "io_read_time_seconds_total": int(reader.read_ns) / _NS,
        "io_write_ops_total": int(io.writes),
        "io_write_bytes_total": int(io.bytes_written),
        "io_write_time_seconds_total": int(io.write_ns) / _NS,
        "io_sync_ops_total": int(io.syncs),
        "io_sync_time_seconds_total": int(io.sync_ns) / _NS,
        "queue_disk_reads_total": int(reader.reads),
        "queue_disk_writes_total": int(io.records),
    }


def _global_values(broker: Broker, totals: WalkTotals) -> Values:
    """Return the counters of messages, by protocol and queue type."""
    told = broker.core.counts
    links = totals.links
    routed = sum(int(counts.published) for counts in totals.queues.values())
    numbers = {
        "global_publishers": totals.channels.publishers,
        "global_consumers": totals.levels.consumers,
        "global_messages_received_total": links.published,
        "global_messages_received_confirm_total": links.confirming,
        "global_messages_confirmed_total": links.confirmed,
        "global_messages_routed_total": routed,
        "global_messages_unroutable_dropped_total": told.unroutable_dropped,
        "global_messages_unroutable_returned_total": told.unroutable_returned,
    }
    found: Values = {name: [(_AMQP, int(number))] for name, number in numbers.items()}
    for kind, counts in totals.queues.items():
        labels = (*_AMQP, QUEUE_TYPES[kind])
        for name, number in _deliveries(counts).items():
            found.setdefault(name, []).append((labels, number))
    found.update(_dead_letters(broker))
    return found


def _deliveries(counts: QueueCounts) -> dict[str, int]:
    manual, automatic = int(counts.delivered), int(counts.delivered_no_ack)
    got, got_no_ack = int(counts.got), int(counts.got_no_ack)
    return {
        "global_messages_delivered_total": manual + automatic + got,
        "global_messages_delivered_consume_manual_ack_total": manual,
        "global_messages_delivered_consume_auto_ack_total": automatic,
        "global_messages_delivered_get_manual_ack_total": got - got_no_ack,
        "global_messages_delivered_get_auto_ack_total": got_no_ack,
        "global_messages_get_empty_total": int(counts.got_nothing),
        "global_messages_redelivered_total": int(counts.redelivered),
        "global_messages_acknowledged_total": int(counts.acked),
    }


def _dead_letters(broker: Broker) -> Values:
    told = broker.core.counts
    found: Values = {}
    for kind, strategies in _STRATEGIES.items():
        for strategy in strategies:
            deaths = told.deaths.get((kind, strategy), {})
            for reason in ("expired", "maxlen", "rejected", "delivery_limit"):
                number = deaths.get(reason, 0)
                name = f"global_messages_dead_lettered_{reason}_total"
                found.setdefault(name, []).append(((QUEUE_TYPES[kind], strategy), int(number)))
    confirmed = (QUEUE_TYPES["quorum"], "at_least_once"), int(told.letters_confirmed)
    found["global_messages_dead_lettered_confirmed_total"] = [confirmed]
    return found


def _object_values(broker: Broker, totals: WalkTotals) -> Values:
    """Return the sums over queues, connections, channels and exchanges."""
    told, levels, links, channels = broker.core.counts, totals.levels, totals.links, totals.channels
    done = QueueCounts()
    for counts in totals.queues.values():
        done.add(counts)
    numbers = {
        "consumers": levels.consumers,
        "queues": levels.queues,
        **queue_numbers(levels),
        **queue_deliveries("queue", done),
        **queue_publishes(done),
        "connection_incoming_bytes_total": links.received_bytes,
        "connection_outgoing_bytes_total": links.sent_bytes,
        "connection_incoming_packets_total": links.received_packets,
        "connection_outgoing_packets_total": links.sent_packets,
        "connection_channels": channels.channels,
        **channel_numbers(channels),
        **queue_deliveries("channel", done),
    }
    for of in ("channel", "exchange"):
        numbers[f"{of}_messages_published_total"] = links.published
        numbers[f"{of}_messages_confirmed_total"] = links.confirmed
        numbers[f"{of}_messages_unroutable_returned_total"] = told.unroutable_returned
        numbers[f"{of}_messages_unroutable_dropped_total"] = told.unroutable_dropped
    return {name: _one(int(number)) for name, number in numbers.items()}


def queue_deliveries(of: str, counts: QueueCounts) -> dict[str, int]:
    """Return the delivery counters of one queue or of all, named after `of` (queue, channel)."""
    return {
        f"{of}_get_ack_total": int(counts.got - counts.got_no_ack),
        f"{of}_get_total": int(counts.got_no_ack),
        f"{of}_messages_delivered_ack_total": int(counts.delivered),
        f"{of}_messages_delivered_total": int(counts.delivered_no_ack),
        f"{of}_messages_redelivered_total": int(counts.redelivered),
        f"{of}_messages_acked_total": int(counts.acked),
        f"{of}_get_empty_total": int(counts.got_nothing),
    }


def queue_publishes(counts: QueueCounts) -> dict[str, int]:
    """Return the publish counters of one queue or of all."""
    published = int(counts.published)
    names = ("queue_messages_published_total", "queue_exchange_messages_published_total")
    return dict.fromkeys(names, published)


def queue_numbers(levels: QueueLevels) -> dict[str, int]:
    """Return the gauges of one queue or of all."""
    found = {
        "queue_messages_ready": levels.ready,
        "queue_messages_unacked": levels.unacked,
        "queue_messages": levels.ready + levels.unacked,
        "queue_consumers": levels.consumers,
        "queue_consumer_capacity": levels.able,
        "queue_consumer_utilisation": levels.able,
        "queue_messages_bytes": levels.ready_bytes + levels.unacked_bytes,
        "queue_messages_ready_bytes": levels.ready_bytes,
        "queue_messages_unacked_bytes": levels.unacked_bytes,
        "queue_messages_persistent": levels.persistent,
        "queue_messages_persistent_bytes": levels.persistent_bytes,
        "queue_messages_ram": levels.ram,
        "queue_messages_ram_bytes": levels.ram_bytes,
        "queue_messages_ready_ram": levels.ram - levels.unacked_ram,
        "queue_messages_unacked_ram": levels.unacked_ram,
        "queue_process_memory_bytes": levels.booked,
    }
    if levels.head >= 0:
        found["queue_head_message_timestamp"] = levels.head
    return {name: int(number) for name, number in found.items()}


def channel_numbers(levels: ChannelLevels) -> dict[str, int]:
    """Return the gauges of one channel or of all."""
    found = {
        "channel_consumers": levels.consumers,
        "channel_messages_unacked": levels.unacked,
        "channel_messages_unconfirmed": levels.unconfirmed,
        "channel_messages_uncommitted": levels.uncommitted,
        "channel_acks_uncommitted": levels.acks_uncommitted,
        "channel_prefetch": levels.prefetch,
        "consumer_prefetch": levels.consumer_prefetch,
    }
    return {name: int(number) for name, number in found.items()}


def memory_parts(broker: Broker) -> dict[str, int]:
    """Return the accounted memory in bytes, by kind."""
    accounts = broker.core.accounts
    return {
        "messages": int(broker.message_bytes()),
        "definitions": int(accounts.definition_bytes),
        "connections": int(accounts.connection_bytes),
        "stream_cache": int(broker.core.stream_cache.bytes),
        "retained": int(broker.core.memory.retention.bytes),
    }


def _own_values(broker: Broker, counts: Mapping[str, int], totals: WalkTotals) -> Values:
    """Return the values of the metrics that RabbitMQ does not have."""
    core = broker.core
    told, damage, levels = core.counts, core.damage, totals.levels
    dropped = core.letters_dropped
    events = 0 if core.events is None else int(core.events.dropped)
    numbers: dict[str, float] = {
        "leveret_journal_records_total": int(core.io.records),
        "leveret_journal_bytes": int(core.journal.bytes_since_roll),
        "leveret_journal_unsynced_bytes": int(core.journal.unsynced_bytes),
        "leveret_checkpoints_total": int(told.checkpoints),
        "leveret_checkpoint_seconds_total": int(told.checkpoint_ms) / 1000,
        "leveret_checkpoint_running": told.checkpoint_since_ms > 0,
        "leveret_pages_unwritten_bytes": int(core.spill.unwritten_bytes),
        "leveret_pages_files_bytes": int(core.spill.use.bytes_total),
        "leveret_pages_live_bytes": int(core.spill.use.bytes_live),
        "leveret_messages_paged_out": max(0, int(levels.paged_out)),
        "leveret_recovery_seconds": int(told.recovery_ms) / 1000,
        "leveret_recovery_records": int(told.recovered_records),
        "leveret_recovery_messages": int(told.recovered_messages),
        "leveret_recovery_clean_stop": told.clean_stop,
        "leveret_damage_places_total": int(damage.places),
        "leveret_damage_records_lost_total": int(damage.records_lost),
        "leveret_damage_torn_ends_total": int(damage.torn),
        "leveret_stream_consumers": int(levels.readers),
        "leveret_stream_lag_messages": int(levels.lag),
        "leveret_stream_lag_messages_max": int(levels.lag_max),
        "leveret_quota_refused_total": int(told.quota_refused),
        "leveret_dead_letters_dropped_total": int(dropped.total()),
        "leveret_events_dropped_total": events,
        "leveret_steps_total": int(core.scheduler.spent),
        "leveret_connections_refused_total": counts.get("connections_refused", 0),
        "leveret_connections_expelled_total": counts.get("connections_expelled", 0),
    }
    found = {name: _one(float(number)) for name, number in numbers.items()}
    found["leveret_memory_bytes"] = [
        ((clean(kind),), size) for kind, size in memory_parts(broker).items()
    ]
    return found
