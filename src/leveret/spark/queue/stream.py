"""The streaming read of a queue: micro-batches of spooled messages, each row at least once.

One reader runs in the driver as long as the query, and only this reader consumes.  Spark calls
`latestOffset` with the end of a batch only when that batch is in its commit log, including the last
poll of `Trigger.AvailableNow`, so `latestOffset` acks.  Spark does not call `commit` for the last
batch, nor `stop` at the end (measured with 4.3.0), so the reader must not depend on either.

An offset is `{"orders": {"next": 1200, "spool": "<id>"}}`.  Numbers are meaningless without their
spool, so a checkpoint of another spool is refused.

Tasks check that they can read the spool, and no message is acked before a batch of this run has
passed that check.  So a cluster without shared storage is refused, and the messages stay in the
queue.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.columns.projection import Projection
from leveret.spark.connection.retries import ask
from leveret.spark.entries import entries
from leveret.spark.offsets import OffsetsError
from leveret.spark.options.read import OptionError, Options
from leveret.spark.queue.feed import QueueFeed
from leveret.spark.queue.rows import SpoolBatchBuilder
from leveret.spark.queue.spool import Segment, Spool, check_sight, read_segment
from leveret.spark.stream.planner import OffsetRange, plan
from leveret.spark.stream.ranges import DataLossError
from leveret.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

Offset = dict[str, dict[str, object]]

_END: Final = 2**63 - 1

#: Options of streams that do not apply to a queue, whose size the reader does not query.
_UNKNOWN: Final = ("minOffsetsPerTrigger", "maxTriggerDelay")

T = TypeVar("T")
log = logging.getLogger("leveret.spark")


@dataclass(frozen=True)
class SpoolRange(InputPartition):
    """The spooled messages from `start` up to, but not including, `end`, and their segments."""

    directory: str
    spool: str
    start: int
    end: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class SpoolOffset:
    """An offset of Spark: the next number to read in a spool."""

    spool: str
    next: int


@entries
class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Consumes a queue into the spool, and reads the spool in micro-batches."""

    def __init__(self, options: Options, schema: StructType) -> None:
        assert options.queue is not None
        self._options = _checked(options)
        self._queue = options.queue
        self._schema = schema
        self._feed: QueueFeed | None = None
        self._ready: int | None = None  # of Trigger.AvailableNow: the queue's count at its start
        self._waits = False
        self._begun = False
        self._planned = False

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the connection and the spool."""
        return self.__dict__ | {"_feed": None}

    # -- on the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return the first number that is in no committed batch.  Raises: SpoolError; OSError."""
        spool = self._driver().spool
        return self._json(spool.next)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return the limit set by `maxOffsetsPerTrigger` or `maxBytesPerTrigger`."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """End the query after the queue's current messages.  Raises: Interrupted; NotFound."""
        self._ready = self._ask(self._driver().ready)

    def take_present(self) -> None:
        """Make the first batch wait for the queue's current messages, up to the limits."""
        self._waits = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802  Spark's name
        """Ack messages below `start`, which are committed, and return the end of the next batch.

        Raises: DataLossError; Interrupted; NotFound (404); SpoolError; OffsetsError if the
        checkpoint is of another source.
        """
        feed = self._driver()
        position = self._begin(feed, self._place(start))
        if self._planned:
            feed.seen()
        self._ask(lambda: feed.committed(position))
        feed.handed = max(feed.handed, position)
        records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        wanted = _END if records is None else position + records
        self._ask(lambda: feed.reach(wanted))
        size = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_trigger
        end = feed.spool.limit(position, records, size)
        if feed.goal is not None:
            end = max(position, min(end, feed.goal))
        feed.handed = end
        return self._json(end)

    def _begin(self, feed: QueueFeed, place: SpoolOffset) -> int:
        """Return the number to read from; start the feed at the first call."""
        spool = feed.spool
        position = place.next
        if place.spool != spool.id:
            self._lost(
                f"the checkpoint belongs to spool {place.spool}, and {spool.directory} is another"
            )
            position = spool.next
        if not self._begun:
            if position > spool.end:
                self._lost(f"{spool.directory} ends at {spool.end}, the checkpoint at {position}")
                spool.restart(position)
            if self._waits:
                self._warn_of_repeats(spool, position)
            feed.begin(position, self._ready)
            if self._waits:
                feed.wait_for(self._ask(feed.ready))
            self._begun = True
        return position

    def _warn_of_repeats(self, spool: Spool, position: int) -> None:
        """Log a warning if messages of the last committed batch are still in the queue."""
        if any(segment.lent for segment in spool.between(spool.committed, position)):
            log.warning(
                "queue %r: the last batch of the previous run was not acknowledged, and its "
                "messages are read again, marked as redelivered. Before Spark 4.2, "
                "Trigger.AvailableNow and Trigger.Once always end so: start such a query by "
                "leveret.spark.start_available",
                self._queue,
            )

    def reportLatestOffset(self) -> Offset:  # noqa: N802  Spark's name
        """Return the end of the spool, including unread messages, for the query's progress."""
        return self._json(self._driver().spool.end)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the partitions of a batch, computed only from its offsets, options and files.

        Raises: DataLossError if messages of it are not in the spool; SpoolError; OSError.
        """
        spool = self._driver().spool
        first, last = self._place(start), self._place(end)
        begin = first.next
        if first.spool != last.spool:
            begin = spool.next  # as in `latestOffset`
        if last.spool != spool.id:
            self._lost(f"a batch lies in spool {last.spool}, and {spool.directory} is another")
            return []
        if begin < last.next:
            self._planned = True
        self._check_whole(spool, begin, last.next)
        options = self._options
        whole = OffsetRange(self._queue, begin, last.next)
        ranges = plan([whole], options.max_records_per_partition, options.min_partitions)
        directory = str(spool.directory)
        return [
            SpoolRange(directory, spool.id, r.start, r.end, spool.between(r.start, r.end))
            for r in ranges
        ]

    def _check_whole(self, spool: Spool, start: int, end: int) -> None:
        """Check that all messages of a batch are in the spool.  Raises: DataLossError."""
        position = start
        for segment in spool.between(start, end):
            if segment.start > position:
                self._lost(_missing(position, segment.start))
            position = segment.end
        if position < end:
            self._lost(_missing(position, end))

    def _lost(self, what: str) -> None:
        """Report messages missing in the spool.  Raises: DataLossError with `failOnDataLoss`."""
        text = f"queue {self._queue!r}: {what}"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{text}. Acknowledged messages may be lost with the files. To continue "
                "without them, set failOnDataLoss to false."
            )
        log.warning("%s; failOnDataLoss is false, so reading continues", text)

    def _ask(self, question: Callable[[], T]) -> T:
        """Return the broker's answer, with retries after interruptions.  Raises: Interrupted."""
        return ask(self._options, f"queue {self._queue!r}", question)

    def stop(self) -> None:
        """Close the connection and the spool."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def make_feed(self, spool: Spool) -> QueueFeed:
        """Return a feed that consumes the queue into a spool."""
        return QueueFeed(self._options, spool)

    def _driver(self) -> QueueFeed:
        """Return the feed, which exists as long as the query.  Raises: SpoolError; OSError."""
        if self._feed is None:
            assert self._options.spool_dir is not None
            vhost = self._options.parameters().vhost
            self._feed = self.make_feed(Spool(self._options.spool_dir, self._queue, vhost))
        return self._feed

    def _json(self, number: int) -> Offset:
        return {self._queue: {"next": number, "spool": self._driver().spool.id}}

    def _place(self, stored: Mapping[str, object]) -> SpoolOffset:
        """Parse an offset stored by Spark.  Raises: OffsetsError if it is of another source."""
        place = stored.get(self._queue)
        if len(stored) == 1 and isinstance(place, dict):
            number, spool = place.get("next"), place.get("spool")
            if isinstance(number, int) and isinstance(spool, str):
                return SpoolOffset(spool, number)
        raise OffsetsError(
            f"the checkpoint is not of queue {self._queue!r}: it contains {json.dumps(stored)}; "
            "for another source, use another checkpointLocation"
        )

    # -- on the executors --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: SpoolError; DataLossError."""
        if not isinstance(partition, SpoolRange):
            return  # Spark plans a batch without partitions as one of its own type
        directory = Path(partition.directory)
        check_sight(directory, partition.spool, socket.gethostname())
        projection = Projection(self._options, self._schema)
        builder = SpoolBatchBuilder(self._queue, projection.needed)
        for segment in partition.segments:
            start, end = max(partition.start, segment.start), min(partition.end, segment.end)
            try:
                spooled = read_segment(directory, segment)
            except FileNotFoundError:
                self._lost(_missing(start, end))
                continue
            wanted = spooled.slice(start - segment.start, end - start)
            yield projection.apply(builder.build(start, wanted))


def _checked(options: Options) -> Options:
    """Return the options of a streaming read of a queue.  Raises: OptionError."""
    for name in _UNKNOWN:
        if name in options.given:
            raise OptionError(f"option {name!r} belongs to streams")
    if options.ack_mode == "none":
        raise OptionError(
            "option 'ackMode': none only browses, so that every batch would have the same "
            "messages: a streaming read consumes them (afterBatch or spool)"
        )
    if options.spool_dir is None:
        raise OptionError(
            "option 'spoolDir' is missing: set the directory that stores a queue's messages until "
            "their batch is committed, for this query alone; on a cluster, on shared storage"
        )
    if not options.spool_dir.startswith("/"):
        raise OptionError(
            "option 'spoolDir': not an absolute path, which is the same for driver and executors; "
            "only mounted storage can be locked and synced"
        )
    return options.for_stream()


def _missing(start: int, end: int) -> str:
    return f"the messages {start} to {end - 1} are missing in the spool"
