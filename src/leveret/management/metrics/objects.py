"""The values of `/metrics/per-object` and `/metrics/detailed`: an entry for each object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from leveret.broker.stats.metrics import QueueRows
from leveret.limits import SCRAPE_OBJECTS_MAX
from leveret.management.metrics import series as table
from leveret.management.metrics.aggregated import (
    QUEUE_TYPES,
    channel_numbers,
    queue_deliveries,
    queue_numbers,
    queue_publishes,
)
from leveret.management.metrics.series import MetricSeries
from leveret.management.metrics.stream_queries import QueryReading
from leveret.management.metrics.text import Sample, pieces
from leveret.management.metrics.totals import SCRAPE_SLICE, in_slices
from leveret.session.metrics import LinkRows

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.session.metrics import ConnectionRow

#: The families with an entry for each queue, or for each consumer of a stream.
_OF_QUEUES: Final = (
    "queue_coarse_metrics",
    "queue_consumer_count",
    "queue_metrics",
    "queue_delivery_metrics",
    "channel_queue_exchange_metrics",
    "queue_exchange_metrics",
    "stream_consumer_metrics",
)
_OF_QUERIES: Final = "stream_query_metrics"
#: The families that the series `queue_info` accompanies.
_WITH_TYPE: Final = ("queue_coarse_metrics", "queue_consumer_count", "queue_metrics")
_OF_LINKS: Final = ("connection_coarse_metrics", "connection_metrics", "channel_metrics")

#: The labels of an object, and its values by series.
_Entry = tuple[Sequence[str], dict[str, int]]


class Objects:
    """The values of the objects of some families, at most `limit` objects of each kind.

    `vhosts` restricts queues and queries to these vhosts; None means all.  `queries` yields the
    metrics of the Spark queries that read streams.
    """

    def __init__(
        self,
        broker: Broker,
        families: Collection[str],
        vhosts: list[str] | None,
        limit: int = SCRAPE_OBJECTS_MAX,
        queries: Iterable[QueryReading] = (),
    ) -> None:
        self._families: Final = [name for name in table.PER_OBJECT if name in families]
        # As in RabbitMQ, queue_metrics includes queue_consumer_count.
        if "queue_metrics" in self._families and "queue_consumer_count" in self._families:
            self._families.remove("queue_consumer_count")
        queues = any(name in _OF_QUEUES for name in self._families)
        links = any(name in _OF_LINKS for name in self._families)
        self._queues: Final = QueueRows(broker, vhosts, limit) if queues else None
        self._all_queries: Final = queries if _OF_QUERIES in self._families else ()
        self._vhosts: Final = vhosts
        self._limit: Final = limit
        self._spark: list[QueryReading] = []
        self._spark_omitted = 0
        self._links: Final = LinkRows(broker, limit) if links else None

    async def take(self) -> None:
        """Collect the values, in slices."""
        # Half of the usual number per slice, because entries cost more than sums.
        count = SCRAPE_SLICE // 2
        if self._queues is not None:
            await in_slices(self._queues.take_all(), count)
        if self._links is not None:
            await in_slices(self._links.take_all(), count)
        await in_slices(self._take_queries(), count)

    def _take_queries(self) -> Iterator[int]:
        for one in self._all_queries:
            if self._vhosts is None or one.vhost in self._vhosts:
                if len(self._spark) < self._limit:
                    self._spark.append(one)
                else:
                    self._spark_omitted += 1
            yield 1

    def text(self, prefix: str) -> Iterator[bytes]:
        """Yield the text, some hundred samples at a time."""
        for family in self._families:
            series = table.PER_OBJECT[family]
            entries = self._entries(family)
            for one in series.values():
                yield from _series(one, prefix, entries)
        if any(family in _WITH_TYPE for family in self._families):
            yield from pieces(table.QUEUE_INFO["queue_info"], prefix, self._infos())
        omitted = table.ACCOUNT["leveret_metrics_objects_omitted"]
        yield from pieces(omitted, prefix, self._omitted())

    def _omitted(self) -> list[Sample]:
        found: list[Sample] = []
        if self._queues is not None:
            found.append((("queues",), self._queues.omitted))
            found.append((("stream_consumers",), self._queues.readers_omitted))
        if _OF_QUERIES in self._families:
            found.append((("stream_queries",), self._spark_omitted))
        if self._links is not None:
            found.append((("connections",), self._links.omitted))
            found.append((("channels",), self._links.channels_omitted))
        return found

    def _entries(self, family: str) -> Callable[[], Iterator[_Entry]]:
        if family == "stream_consumer_metrics":
            return self._readers
        if family == _OF_QUERIES:
            return self._of_spark
        if family == "queue_delivery_metrics":
            return self._of_deliveries
        if family in ("channel_queue_exchange_metrics", "queue_exchange_metrics"):
            return self._of_publishes
        if family in _OF_QUEUES:
            return self._of_queues
        return self._of_channels if family == "channel_metrics" else self._of_connections

    def _of_queues(self) -> Iterator[_Entry]:
        assert self._queues is not None
        for row in self._queues.rows:
            yield (row.vhost, row.name), queue_numbers(row.levels)

    def _of_deliveries(self) -> Iterator[_Entry]:
        assert self._queues is not None
        for row in self._queues.rows:
            yield (row.vhost, row.name), queue_deliveries("queue", row.counts)

    def _of_publishes(self) -> Iterator[_Entry]:
        assert self._queues is not None
        for row in self._queues.rows:
            yield (row.vhost, row.name), queue_publishes(row.counts)

    def _infos(self) -> Iterator[Sample]:
        assert self._queues is not None
        for row in self._queues.rows:
            yield (row.vhost, row.name, QUEUE_TYPES[row.kind], "leader"), 1

    def _readers(self) -> Iterator[_Entry]:
        assert self._queues is not None
        for row in self._queues.readers:
            values = {
                "leveret_stream_consumer_offset": row.offset,
                "leveret_stream_consumer_lag": row.lag,
            }
            yield (row.vhost, row.stream, row.name), values

    def _of_spark(self) -> Iterator[_Entry]:
        for one in self._spark:
            yield one.labels, one.values

    def _of_connections(self) -> Iterator[_Entry]:
        assert self._links is not None
        for row in self._links.rows:
            yield (row.name,), _connection_numbers(row)

    def _of_channels(self) -> Iterator[_Entry]:
        assert self._links is not None
        for row in self._links.channels:
            yield (row.name,), channel_numbers(row.levels)


def _series(
    one: MetricSeries, prefix: str, entries: Callable[[], Iterator[_Entry]]
) -> Iterator[bytes]:
    samples = (
        (labels, values[one.name]) if one.name in values else None for labels, values in entries()
    )
    return pieces(one, prefix, samples)


def _connection_numbers(row: ConnectionRow) -> dict[str, int]:
    counts = row.counts
    return {
        "connection_incoming_bytes_total": int(counts.received_bytes),
        "connection_outgoing_bytes_total": int(counts.sent_bytes),
        "connection_incoming_packets_total": int(counts.received_packets),
        "connection_outgoing_packets_total": int(counts.sent_packets),
        "connection_channels": row.channel_count,
    }
