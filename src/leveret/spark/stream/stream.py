"""The streaming read of streams: micro-batches of offset ranges, processed exactly once.

One reader runs in the driver as long as the query and owns its connections; pickled copies of it
run in the executors.  Spark writes the offsets of a batch to its checkpoint before it plans the
batch, and requests the same range again after a failure.

If a stream appears while a query is running (a new partition, a new match of a pattern), the batch
adds its earliest offset without reading rows, and the next batch reads from there.  So a batch is a
pure function of its two offsets.

`commit` does nothing because reading a stream removes nothing from it, and because Spark does not
call `commit` for the last batch.  `stop` only closes connections.  Spark 4.3.0 does not call `stop`
at all (measured); the end of the process closes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from leveret.spark.columns.projection import Projection
from leveret.spark.entries import entries
from leveret.spark.offsets import LATEST, OffsetsError, Stored, from_json, refusal
from leveret.spark.options.read import OptionError, Options
from leveret.spark.stream.finder import STREAM_ACCESS, StreamAccess
from leveret.spark.stream.limits import in_turn, shared, within_bytes
from leveret.spark.stream.planner import OffsetRange, plan
from leveret.spark.stream.ranges import DataLossError, read_range, report_data_loss
from leveret.spark.stream.streams import Streams
from leveret.spark.stream.task import query_of_task
from leveret.spark.transport import QueryReport, Tail
from leveret.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

Offsets = Mapping[str, int]


@entries
class SparkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams in micro-batches of offset ranges."""

    def __init__(
        self,
        options: Options,
        schema: StructType,
        access: StreamAccess = STREAM_ACCESS,
    ) -> None:
        self._options = options.for_stream()
        self._projection = Projection(options, schema)
        self._access = access
        self._streams: Streams | None = None
        self._target: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._reported: dict[str, Tail] | None = None
        #: Identifies this run to the broker.
        self._run = secrets.token_hex(8)
        self._last_batch_at: float | None = None

    def __getstate__(self) -> dict[str, object]:
        """Pickle without the connections."""
        return self.__dict__ | {"_streams": None}

    # -- on the driver -----------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  Spark's name
        """Return the offsets at which a new query starts.

        Spark asks for them at every start, but uses the offsets of the checkpoint if it has one.
        So errors in the options' positions are raised only when the positions are used.

        Raises: Interrupted; NotFound (404).
        """
        streams = self._driver()
        try:
            bounds = streams.bounds()
            starts = streams.starts(LATEST, bounds)
            ids = _known({name: one.stream_id for name, one in bounds.items()})
            return Stored(dict(sorted(starts.items())), ids).to_json()
        except (OptionError, DataLossError) as error:
            return refusal(str(error))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return one limit for Spark; `latestOffset` enforces all limits of the options."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def take_present(self) -> None:
        """Do nothing, because each batch reads all available messages up to the limits."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """End the query at the streams' current ends.  Raises: Interrupted; NotFound (404)."""
        self._target = {name: tail.latest for name, tail in self._driver().tails().items()}

    def latestOffset(  # noqa: N802  Spark's name
        self, start: dict[str, object], limit: ReadLimit
    ) -> dict[str, object]:
        """Return the end of the next batch.

        Raises: DataLossError if a stream was deleted, was declared again or ends before `start`;
        Interrupted; NotFound (404); OffsetsError if the checkpoint is of other streams.
        """
        stored = from_json(start)
        position = stored.offsets
        # When Spark calls this, all batches before `start` are in the commit log.
        self._driver().report(self._run, position)
        tails = self._driver().tails()
        latest = {name: tail.latest for name, tail in tails.items()}
        self._reported = tails
        self._check_gone(position, latest)
        target = latest if self._target is None else self._target
        ends: dict[str, int] = {}
        ids = stored.ids | _known({name: tail.stream_id for name, tail in tails.items()})
        available: dict[str, int] = {}
        for name in _in_order(position, latest):
            last = latest[name]
            if name in position and self._is_another(name, stored, tails[name]):
                ends[name], ids[name] = self._beginning(name, ids)
            elif name in position:
                ends[name] = self._begin(name, position[name], last)
                to_read = min(last, target.get(name, last)) - position[name]
                available[name] = max(0, to_read)
            elif name in target:
                ends[name], ids[name] = self._beginning(name, ids)
        ids = {name: ids[name] for name in ends if ids.get(name)}
        given = available
        if not isinstance(limit, ReadAllAvailable):
            if self._waits_for_more(available):
                return start
            self._skip_gone(ends, available)
            given = self._limited(ends, available)
        ends = {name: end + given.get(name, 0) for name, end in ends.items()}
        if ends == position and ids == stored.ids:
            return start
        self._last_batch_at = self._access.pause.now()
        # If the batch takes all messages, no stream waits, and the order starts over.
        order = sorted(ends) if given == available else in_turn(ends, given)
        return Stored({name: ends[name] for name in order}, ids).to_json()

    def _check_gone(self, position: Offsets, names: Offsets) -> None:
        """Report streams of the checkpoint that the query does not read (any more)."""
        self._check_checkpoint(position)
        for name in position:
            if name not in names:
                report_data_loss(self._options, name, "it is gone, or is not read any more")

    def _check_checkpoint(self, offsets: Offsets) -> None:
        """Check that offsets belong to the named streams.  Raises: OffsetsError."""
        named = self._options.names
        if named is not None and offsets and not set(named).intersection(offsets):
            raise OffsetsError(
                f"the checkpoint is not of {self._options.title}: it contains {dict(offsets)}; "
                "for another source, use another checkpointLocation"
            )

    def _is_another(self, name: str, stored: Stored, tail: Tail) -> bool:
        """Return whether a stream was declared again since the last batch; if so, report it."""
        known = stored.ids.get(name)
        if known is None or tail.stream_id in (None, known):
            return False
        what = (
            f"it was deleted and declared again: it was read up to {stored.offsets[name]} with the "
            f"id {known}, and has the id {tail.stream_id} now"
        )
        report_data_loss(self._options, name, what)
        return True

    def _beginning(self, name: str, ids: Mapping[str, str]) -> tuple[int, str]:
        """Return a new stream's earliest offset and its id, or "" if the id is unknown."""
        bounds = self._driver().bounds_of(name)
        return bounds.earliest, bounds.stream_id or ids.get(name, "")

    def _begin(self, name: str, position: int, latest: int) -> int:
        """Return where the next batch begins, and report a stream that ends before its position."""
        # If `latest` is 0, all messages have expired; the next one has a higher offset.
        if latest == 0 or latest >= position:
            return position
        what = f"it ends at {latest}, but was read up to {position} already"
        report_data_loss(self._options, name, what)
        return latest

    def _waits_for_more(self, available: Offsets) -> bool:
        """Return whether to wait because a batch would be too small.

        A query with a target does not wait, because no more messages count for it.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or self._last_batch_at is None:
            return False
        waited = self._access.pause.now() - self._last_batch_at
        too_little = sum(available.values()) < least
        return too_little and waited * 1000 < self._options.max_trigger_delay_ms

    def _skip_gone(self, ends: dict[str, int], available: dict[str, int]) -> None:
        """Exclude expired messages from the limits, so that one batch skips a long gap."""
        if self._options.fail_on_data_loss:
            return
        for name, count in available.items():
            if count > 0:
                gone = min(count, max(0, self._driver().earliest_of(name) - ends[name]))
                ends[name] += gone
                available[name] -= gone

    def _limited(self, starts: Offsets, available: dict[str, int]) -> dict[str, int]:
        """Return the part of the available messages that the limits allow."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            available = shared(available, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            sizes = {
                name: self._driver().mean_bytes(name, starts[name], starts[name] + count)
                for name, count in available.items()
            }
            available = within_bytes(available, sizes, options.max_bytes_per_trigger)
        return available

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802  Spark's name
        """Return the last known ends of the streams, for the query's progress."""
        if self._reported is None:
            return None
        latest = {name: tail.latest for name, tail in sorted(self._reported.items())}
        sizes = {name: tail.mean_bytes for name, tail in self._reported.items()}
        known = {name: round(size, 1) for name, size in sizes.items() if size is not None}
        return Stored(latest, {}, known).to_json()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the partitions of a batch, computed only from its offsets and the options.

        A batch has no rows of a stream that appears or changes its id in it; the next batch begins
        at the stream's earliest message.

        Raises: DataLossError if the batch ends before it starts, because the stream was declared
        again; OffsetsError if the checkpoint is of other streams.
        """
        options = self._options
        before, after = from_json(start), from_json(end)
        self._check_checkpoint(after.offsets)
        ranges = []
        for name, last in after.offsets.items():
            stream_id = after.ids.get(name)
            first = before.offsets.get(name, last)
            if stream_id is not None and before.ids.get(name, stream_id) != stream_id:
                first = last
            elif last < first:
                report_data_loss(options, name, f"a batch from {first} to {last} starts anew at 0")
                first = 0
            ranges.append(OffsetRange(name, first, last, stream_id, self._run))
        return [*plan(ranges, options.max_records_per_partition, options.min_partitions)]

    def stop(self) -> None:
        """Close the connections."""
        if self._streams is not None:
            self._streams.close()

    def _driver(self) -> Streams:
        """Return the driver's streams, whose connections stay open as long as the query runs."""
        if self._streams is None:
            self._streams = Streams(self._options, self._projection.needed, self._access)
        return self._streams

    # -- on the executors --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's messages.  Raises: DataLossError; Interrupted; NotFound (404)."""
        if isinstance(partition, OffsetRange):
            projection = self._projection
            with self._access.open(self._options, partition.stream, projection.needed) as transport:
                if partition.run is not None:
                    transport.report(QueryReport(partition.run, None, *query_of_task()))
                for batch in read_range(transport, self._options, partition):
                    yield projection.apply(batch)


def _in_order(position: Offsets, names: Offsets) -> list[str]:
    """Return the names in the order of service, new streams at the end."""
    return [name for name in position if name in names] + sorted(set(names) - set(position))


def _known(ids: Mapping[str, str | None]) -> dict[str, str]:
    """Return the ids that are known."""
    return {name: one for name, one in ids.items() if one}
