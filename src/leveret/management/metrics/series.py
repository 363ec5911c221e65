"""The table of all series: their names, types, labels and help texts.

Names without `leveret_` are RabbitMQ's and get the requested prefix (by default `rabbitmq_`); names
with `leveret_` get none.  The table contains exactly the series that the broker emits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
#: The type of series for which RabbitMQ declares none.
UNTYPED: Final = "unknown"

PROTOCOL: Final = ("protocol",)
QUEUE_TYPE: Final = ("protocol", "queue_type")
DEAD: Final = ("queue_type", "dead_letter_strategy")

#: The prefix of series that only Leveret has.
OWN: Final = "leveret_"

#: The beginnings of names that get no prefix: Leveret's own, and one that every process exports.
_WHOLE: Final = (OWN, "process_start_time_")


@dataclass(frozen=True)
class MetricSeries:
    """One series, or one for each combination of the values of its labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def full_name(self, prefix: str) -> str:
        """Return the name, with the prefix if it is one of RabbitMQ's."""
        return self.name if self.name.startswith(_WHOLE) else prefix + self.name


def _named(*series: MetricSeries) -> dict[str, MetricSeries]:
    return {one.name: one for one in series}


IDENTITY: Final = (
    "rabbitmq_node",
    "rabbitmq_cluster",
    "rabbitmq_cluster_permanent_id",
    "rabbitmq_endpoint",
)
BUILD: Final = (
    "rabbitmq_version",
    "erlang_version",
    "prometheus_plugin_version",
    "prometheus_client_version",
    "product_name",
    "product_version",
    "build",
)

#: The identity of the broker, and the metrics of the node.
NODE: Final = _named(
    MetricSeries("identity_info", UNTYPED, "Names of the node and its cluster", IDENTITY),
    MetricSeries(
        "build_info",
        UNTYPED,
        "Versions; erlang_version names the Python, build is compiled or pure",
        BUILD,
    ),
    MetricSeries("erlang_uptime_seconds", GAUGE, "Seconds since the broker began to listen"),
    MetricSeries(
        "process_start_time_seconds",
        GAUGE,
        "When the broker began to listen, in seconds since the Unix epoch",
    ),
    MetricSeries("connections", GAUGE, "Open client connections with an open vhost"),
    MetricSeries("channels", GAUGE, "Open channels"),
    MetricSeries("consumers", GAUGE, "Consumers of queues and streams"),
    MetricSeries("queues", GAUGE, "Queues and streams"),
    MetricSeries("connections_opened_total", COUNTER, "Connections that opened a vhost"),
    MetricSeries("connections_closed_total", COUNTER, "Of these, closed connections"),
    MetricSeries("channels_opened_total", COUNTER, "Channels opened"),
    MetricSeries("channels_closed_total", COUNTER, "Channels closed"),
    MetricSeries("queues_declared_total", COUNTER, "Declarations of new and of existing queues"),
    MetricSeries("queues_created_total", COUNTER, "Queues and streams created"),
    MetricSeries("queues_deleted_total", COUNTER, "Queues and streams deleted"),
    MetricSeries("process_resident_memory_bytes", GAUGE, "Resident memory of the process"),
    MetricSeries("resident_memory_limit_bytes", GAUGE, "The setting memory_bytes_max"),
    MetricSeries(
        "disk_space_available_bytes", GAUGE, "Free space on the disk of the data directory"
    ),
    MetricSeries("disk_space_available_limit_bytes", GAUGE, "The setting disk_free_bytes_min"),
    MetricSeries("process_open_fds", GAUGE, "Open file descriptors"),
    MetricSeries("process_max_fds", GAUGE, "Limit of open file descriptors"),
    MetricSeries("process_open_tcp_sockets", GAUGE, "Open connections, counted against the limit"),
    MetricSeries("process_max_tcp_sockets", GAUGE, "Limit of open connections"),
    MetricSeries("alarms_memory_used_watermark", UNTYPED, "1 while the memory alarm is on"),
    MetricSeries("alarms_free_disk_space_watermark", UNTYPED, "1 while the disk alarm is on"),
    MetricSeries(
        "alarms_file_descriptor_limit", UNTYPED, "1 while the limit of open connections is reached"
    ),
    MetricSeries("auth_attempts_total", COUNTER, "Login attempts", PROTOCOL),
    MetricSeries("auth_attempts_succeeded_total", COUNTER, "Successful logins", PROTOCOL),
    MetricSeries("auth_attempts_failed_total", COUNTER, "Refused logins", PROTOCOL),
    MetricSeries(
        "io_read_ops_total", COUNTER, "Reads of chunks (pages of queues, blocks of streams)"
    ),
    MetricSeries("io_read_bytes_total", COUNTER, "Bytes of these reads"),
    MetricSeries("io_read_time_seconds_total", COUNTER, "Duration of these reads"),
    MetricSeries("io_write_ops_total", COUNTER, "Writes to the journal"),
    MetricSeries("io_write_bytes_total", COUNTER, "Bytes of these writes"),
    MetricSeries("io_write_time_seconds_total", COUNTER, "Duration of these writes"),
    MetricSeries("io_sync_ops_total", COUNTER, "Syncs of the journal"),
    MetricSeries("io_sync_time_seconds_total", COUNTER, "Duration of these syncs"),
    MetricSeries("queue_disk_reads_total", COUNTER, "Message chunks read from disk"),
    MetricSeries("queue_disk_writes_total", COUNTER, "Records written to the journal"),
)

#: The metrics of messages, by protocol and queue type.
GLOBAL: Final = _named(
    MetricSeries("global_publishers", GAUGE, "Channels on which a message was published", PROTOCOL),
    MetricSeries("global_consumers", GAUGE, "Consumers of queues and streams", PROTOCOL),
    MetricSeries("global_messages_received_total", COUNTER, "Messages from publishers", PROTOCOL),
    MetricSeries(
        "global_messages_received_confirm_total",
        COUNTER,
        "Messages from publishers that expect a confirm",
        PROTOCOL,
    ),
    MetricSeries(
        "global_messages_confirmed_total",
        COUNTER,
        "Messages confirmed by basic.ack",
        PROTOCOL,
    ),
    MetricSeries(
        "global_messages_routed_total",
        COUNTER,
        "Message copies routed to queues and streams, including dead letters",
        PROTOCOL,
    ),
    MetricSeries(
        "global_messages_unroutable_dropped_total",
        COUNTER,
        "Unroutable messages without mandatory, dropped",
        PROTOCOL,
    ),
    MetricSeries(
        "global_messages_unroutable_returned_total",
        COUNTER,
        "Unroutable messages with mandatory, returned",
        PROTOCOL,
    ),
    MetricSeries("global_messages_delivered_total", COUNTER, "Deliveries of all kinds", QUEUE_TYPE),
    MetricSeries(
        "global_messages_delivered_consume_manual_ack_total",
        COUNTER,
        "Deliveries to consumers with manual acks",
        QUEUE_TYPE,
    ),
    MetricSeries(
        "global_messages_delivered_consume_auto_ack_total",
        COUNTER,
        "Deliveries to consumers with automatic acks",
        QUEUE_TYPE,
    ),
    MetricSeries(
        "global_messages_delivered_get_manual_ack_total",
        COUNTER,
        "Messages got with basic.get, with manual acks",
        QUEUE_TYPE,
    ),
    MetricSeries(
        "global_messages_delivered_get_auto_ack_total",
        COUNTER,
        "Messages got with basic.get, with automatic acks",
        QUEUE_TYPE,
    ),
    MetricSeries(
        "global_messages_get_empty_total", COUNTER, "basic.get on an empty queue", QUEUE_TYPE
    ),
    MetricSeries("global_messages_redelivered_total", COUNTER, "Redeliveries", QUEUE_TYPE),
    MetricSeries(
        "global_messages_acknowledged_total", COUNTER, "Deliveries acknowledged", QUEUE_TYPE
    ),
    MetricSeries("global_messages_dead_lettered_expired_total", COUNTER, "Messages expired", DEAD),
    MetricSeries(
        "global_messages_dead_lettered_maxlen_total",
        COUNTER,
        "Messages beyond the max length",
        DEAD,
    ),
    MetricSeries(
        "global_messages_dead_lettered_rejected_total", COUNTER, "Messages rejected", DEAD
    ),
    MetricSeries(
        "global_messages_dead_lettered_delivery_limit_total",
        COUNTER,
        "Messages beyond the delivery limit",
        DEAD,
    ),
    MetricSeries(
        "global_messages_dead_lettered_confirmed_total",
        COUNTER,
        "Dead letters confirmed by their queues, with the strategy at-least-once",
        DEAD,
    ),
    MetricSeries("message_size_bytes", HISTOGRAM, "Body sizes of published messages", PROTOCOL),
)

_QUEUE: Final = ("vhost", "queue")

#: Gauges of queues: sums over all queues, or one value for each.
QUEUE_COARSE: Final = _named(
    MetricSeries("queue_messages_ready", GAUGE, "Ready messages", _QUEUE),
    MetricSeries("queue_messages_unacked", GAUGE, "Unacked messages", _QUEUE),
    MetricSeries("queue_messages", GAUGE, "Ready and unacked messages", _QUEUE),
)
QUEUE: Final = _named(
    MetricSeries("queue_consumers", GAUGE, "Consumers", _QUEUE),
    MetricSeries("queue_consumer_capacity", GAUGE, "1 if no message waits for a consumer", _QUEUE),
    MetricSeries(
        "queue_consumer_utilisation", GAUGE, "The same as queue_consumer_capacity", _QUEUE
    ),
    MetricSeries("queue_messages_bytes", GAUGE, "Bytes of all messages", _QUEUE),
    MetricSeries("queue_messages_ready_bytes", GAUGE, "Bytes of ready messages", _QUEUE),
    MetricSeries("queue_messages_unacked_bytes", GAUGE, "Bytes of unacked messages", _QUEUE),
    MetricSeries("queue_messages_persistent", GAUGE, "Messages that survive a restart", _QUEUE),
    MetricSeries(
        "queue_messages_persistent_bytes", GAUGE, "Bytes of messages that survive a restart", _QUEUE
    ),
    MetricSeries("queue_messages_ram", GAUGE, "Messages in memory", _QUEUE),
    MetricSeries("queue_messages_ram_bytes", GAUGE, "Bytes of messages in memory", _QUEUE),
    MetricSeries("queue_messages_ready_ram", GAUGE, "Ready messages in memory", _QUEUE),
    MetricSeries("queue_messages_unacked_ram", GAUGE, "Unacked messages in memory", _QUEUE),
    MetricSeries("queue_process_memory_bytes", GAUGE, "Memory accounted for messages", _QUEUE),
)
#: The timestamp property of the first message, or the oldest of all queues; omitted without one.
QUEUE_HEAD: Final = _named(
    MetricSeries(
        "queue_head_message_timestamp",
        GAUGE,
        "The timestamp property of the first message, in seconds since the Unix epoch",
        _QUEUE,
    ),
)

#: The counters of deliveries.  The names are RabbitMQ's: `ack` means manual acknowledgement.
QUEUE_DELIVERY: Final = _named(
    MetricSeries(
        "queue_get_ack_total", COUNTER, "Messages got with basic.get, with manual acks", _QUEUE
    ),
    MetricSeries(
        "queue_get_total", COUNTER, "Messages got with basic.get, with automatic acks", _QUEUE
    ),
    MetricSeries(
        "queue_messages_delivered_ack_total",
        COUNTER,
        "Deliveries to consumers with manual acks",
        _QUEUE,
    ),
    MetricSeries(
        "queue_messages_delivered_total",
        COUNTER,
        "Deliveries to consumers with automatic acks",
        _QUEUE,
    ),
    MetricSeries("queue_messages_redelivered_total", COUNTER, "Redeliveries", _QUEUE),
    MetricSeries("queue_messages_acked_total", COUNTER, "Deliveries acknowledged", _QUEUE),
    MetricSeries("queue_get_empty_total", COUNTER, "basic.get on an empty queue", _QUEUE),
)
QUEUE_PUBLISHED: Final = _named(
    MetricSeries(
        "queue_messages_published_total",
        COUNTER,
        "Message copies routed to queues and streams, including dead letters",
        ("queue_vhost", "queue"),
    ),
)
QUEUE_EXCHANGE: Final = _named(
    MetricSeries(
        "queue_exchange_messages_published_total",
        COUNTER,
        "The same as queue_messages_published_total, with other labels",
        _QUEUE,
    ),
)
QUEUE_INFO: Final = _named(
    MetricSeries(
        "queue_info",
        GAUGE,
        "1 for each queue, with its type; there is one member, the leader",
        (*_QUEUE, "queue_type", "membership"),
    ),
)

_CONNECTION: Final = ("connection",)

#: The metrics of connections: sums over all connections, or one value for each.
CONNECTION_COARSE: Final = _named(
    MetricSeries("connection_incoming_bytes_total", COUNTER, "Bytes from clients", _CONNECTION),
    MetricSeries("connection_outgoing_bytes_total", COUNTER, "Bytes to clients", _CONNECTION),
)
CONNECTION: Final = _named(
    MetricSeries("connection_incoming_packets_total", COUNTER, "Reads of sockets", _CONNECTION),
    MetricSeries("connection_outgoing_packets_total", COUNTER, "Writes to sockets", _CONNECTION),
    MetricSeries("connection_channels", GAUGE, "Channels of connections", _CONNECTION),
)

_CHANNEL: Final = ("channel",)

CHANNEL: Final = _named(
    MetricSeries("channel_consumers", GAUGE, "Consumers of channels", _CHANNEL),
    MetricSeries("channel_messages_unacked", GAUGE, "Unacked deliveries", _CHANNEL),
    MetricSeries("channel_messages_unconfirmed", GAUGE, "Unconfirmed publishes", _CHANNEL),
    MetricSeries("channel_messages_uncommitted", GAUGE, "Publishes not committed yet", _CHANNEL),
    MetricSeries("channel_acks_uncommitted", GAUGE, "Acks not committed yet", _CHANNEL),
    MetricSeries(
        "channel_prefetch", GAUGE, "Prefetch limit shared by all consumers of a channel", _CHANNEL
    ),
    MetricSeries(
        "consumer_prefetch", GAUGE, "Prefetch limit of each of a channel's consumers", _CHANNEL
    ),
)


def _sums(series: dict[str, MetricSeries], of: str, other: str) -> dict[str, MetricSeries]:
    """Return the same series without labels, with the names of another kind of objects."""
    return _named(
        *(replace(one, name=one.name.replace(of, other, 1), labels=()) for one in series.values())
    )


#: Sums over all channels; counting per channel and exchange would make every message slower.
CHANNEL_EXCHANGE: Final = _named(
    MetricSeries("channel_messages_published_total", COUNTER, "Messages from publishers"),
    MetricSeries("channel_messages_confirmed_total", COUNTER, "Of these, confirmed by basic.ack"),
    MetricSeries(
        "channel_messages_unroutable_returned_total",
        COUNTER,
        "Unroutable messages with mandatory, returned",
    ),
    MetricSeries(
        "channel_messages_unroutable_dropped_total",
        COUNTER,
        "Unroutable messages without mandatory, dropped",
    ),
)
CHANNEL_QUEUE: Final = _sums(QUEUE_DELIVERY, "queue", "channel")
EXCHANGE: Final = _sums(CHANNEL_EXCHANGE, "channel", "exchange")

_KIND: Final = ("kind",)

#: The series that RabbitMQ does not have.
LEVERET: Final = _named(
    MetricSeries("leveret_journal_sync_seconds", HISTOGRAM, "Duration of syncs of the journal"),
    MetricSeries("leveret_journal_records_total", COUNTER, "Records written to the journal"),
    MetricSeries(
        "leveret_journal_bytes", GAUGE, "Bytes of the journal since the last checkpoint began"
    ),
    MetricSeries("leveret_journal_unsynced_bytes", GAUGE, "Journal bytes not synced yet"),
    MetricSeries("leveret_checkpoints_total", COUNTER, "Completed checkpoints"),
    MetricSeries("leveret_checkpoint_seconds_total", COUNTER, "Duration of these checkpoints"),
    MetricSeries("leveret_checkpoint_running", GAUGE, "1 while a checkpoint runs"),
    MetricSeries("leveret_pages_unwritten_bytes", GAUGE, "Bytes of pages not written yet"),
    MetricSeries("leveret_pages_files_bytes", GAUGE, "Bytes of chunks on disk"),
    MetricSeries("leveret_pages_live_bytes", GAUGE, "Of these, bytes of chunks in use"),
    MetricSeries("leveret_messages_paged_out", GAUGE, "Queued messages that are only on disk"),
    MetricSeries("leveret_recovery_seconds", GAUGE, "Duration of the recovery at the start"),
    MetricSeries("leveret_recovery_records", GAUGE, "Journal records read by the recovery"),
    MetricSeries("leveret_recovery_messages", GAUGE, "Messages restored by the recovery"),
    MetricSeries("leveret_recovery_clean_stop", GAUGE, "1 if the broker had stopped cleanly"),
    MetricSeries("leveret_damage_places_total", COUNTER, "Damaged places found"),
    MetricSeries("leveret_damage_records_lost_total", COUNTER, "Records lost to damage"),
    MetricSeries(
        "leveret_damage_torn_ends_total", COUNTER, "Torn journal ends found after a crash"
    ),
    MetricSeries("leveret_stream_consumers", GAUGE, "Named consumers of streams"),
    MetricSeries("leveret_stream_lag_messages", GAUGE, "Messages not processed by named consumers"),
    MetricSeries("leveret_stream_lag_messages_max", GAUGE, "Largest lag of a named consumer"),
    MetricSeries("leveret_memory_bytes", GAUGE, "Accounted memory, by kind", _KIND),
    MetricSeries("leveret_quota_refused_total", COUNTER, "Publishes refused by a quota"),
    MetricSeries("leveret_dead_letters_dropped_total", COUNTER, "Copies of dead letters dropped"),
    MetricSeries("leveret_events_dropped_total", COUNTER, "Message events dropped"),
    MetricSeries("leveret_steps_total", COUNTER, "Steps of work, of about a microsecond each"),
    MetricSeries(
        "leveret_connections_refused_total", COUNTER, "Connections refused because of the limit"
    ),
    MetricSeries(
        "leveret_connections_expelled_total", COUNTER, "Connections closed to make room for others"
    ),
)

_READER: Final = ("vhost", "stream", "consumer")

STREAM_CONSUMER: Final = _named(
    MetricSeries(
        "leveret_stream_consumer_offset", GAUGE, "Stored offset of a named consumer", _READER
    ),
    MetricSeries(
        "leveret_stream_consumer_lag",
        GAUGE,
        "Messages not processed by the named consumer",
        _READER,
    ),
)

_QUERY: Final = ("vhost", "stream", "query", "query_id", "user")

STREAM_QUERY: Final = _named(
    MetricSeries(
        "leveret_stream_query_position",
        GAUGE,
        "Offset after the last batch that a Spark query has committed",
        _QUERY,
    ),
    MetricSeries(
        "leveret_stream_query_lag", GAUGE, "Messages after the last committed batch", _QUERY
    ),
    MetricSeries(
        "leveret_stream_query_bytes_behind", GAUGE, "About how many bytes these have", _QUERY
    ),
)

_OF: Final = ("of",)

#: The objects omitted from an answer with an entry for each object.
ACCOUNT: Final = _named(
    MetricSeries(
        "leveret_metrics_objects_omitted",
        GAUGE,
        "Objects left out because of the limit of an answer",
        _OF,
    ),
)

#: The series of `/metrics/memory-breakdown`: the RabbitMQ buckets that Leveret accounts for.
MEMORY: Final = _named(
    MetricSeries(
        "memory_client_connection_other_bytes", GAUGE, "Memory of connections, without messages"
    ),
    MetricSeries("memory_binary_heap_bytes", GAUGE, "Messages"),
    MetricSeries("memory_classic_metadata_store_bytes", GAUGE, "Definitions"),
    MetricSeries(
        "memory_other_system_bytes", GAUGE, "Memory without an account: the program, and free heap"
    ),
)

#: The families with an entry for each object: RabbitMQ's, and Leveret's own.
PER_OBJECT: Final = {
    "queue_coarse_metrics": QUEUE_COARSE,
    "queue_consumer_count": _named(QUEUE["queue_consumers"]),
    "queue_metrics": {**QUEUE, **QUEUE_HEAD},
    "queue_delivery_metrics": QUEUE_DELIVERY,
    "channel_queue_exchange_metrics": QUEUE_PUBLISHED,
    "queue_exchange_metrics": QUEUE_EXCHANGE,
    "connection_coarse_metrics": CONNECTION_COARSE,
    "connection_metrics": CONNECTION,
    "channel_metrics": CHANNEL,
    "stream_consumer_metrics": STREAM_CONSUMER,
    "stream_query_metrics": STREAM_QUERY,
}


def _of_node(*beginnings: str) -> dict[str, MetricSeries]:
    return {name: one for name, one in NODE.items() if name.startswith(beginnings)}


#: The families that are sums on every path.
SUMS: Final = {
    "channel_exchange_metrics": CHANNEL_EXCHANGE,
    "channel_queue_metrics": CHANNEL_QUEUE,
    "exchange_metrics": EXCHANGE,
    "connection_churn_metrics": _of_node("connections_", "channels_", "queues_"),
    "node_coarse_metrics": _of_node(
        "process_open_fds", "process_resident", "disk_space_available_bytes"
    ),
    "node_metrics": _of_node(
        "process_max_fds", "resident", "disk_space_available_limit", "erlang_uptime"
    ),
    "node_persister_metrics": _of_node("io_"),
    "auth_attempt_metrics": _of_node("auth_"),
}

#: The names of the series with an entry for each object.
OF_OBJECTS: Final = frozenset(name for family in PER_OBJECT.values() for name in family)

#: All series of `/metrics`, in order.
AGGREGATED: Final = {
    **NODE,
    **GLOBAL,
    **QUEUE_COARSE,
    **QUEUE,
    **QUEUE_HEAD,
    **QUEUE_DELIVERY,
    **QUEUE_PUBLISHED,
    **QUEUE_EXCHANGE,
    **CONNECTION_COARSE,
    **CONNECTION,
    **CHANNEL,
    **CHANNEL_EXCHANGE,
    **CHANNEL_QUEUE,
    **EXCHANGE,
    **LEVERET,
}

EVERY: Final = {**AGGREGATED, **QUEUE_INFO, **STREAM_CONSUMER, **STREAM_QUERY, **ACCOUNT, **MEMORY}
