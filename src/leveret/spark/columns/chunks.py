"""Conversion of stored chunks to Arrow batches, column by column, without a loop over rows.

A chunk (`leveret.chunk`) has the same bytes in memory as on the broker's disk.  Offsets, times and
bodies become Arrow arrays over its buffer.  Repeated values (addresses, property bytes) are decoded
once for each distinct value and then taken by index.  Values that all rows share are built once and
reused for later batches.  A batch has rows of several chunks, because Spark processes large batches
faster.

A chunk is verified by its digests, in three calls.  If the digest over all messages does not match,
each message is verified by its own digest, and damaged messages are omitted.  `ranges.py` decides
whether missing messages are data loss.

Invariants: a batch equals the batch that `BatchBuilder` makes of the same messages.  The pieces of
one `Pieces` are in ascending order and do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.chunk import CHUNK_HEADER_BYTES, Chunk, ChunkDamaged, ChunkLayout
from leveret.client.message import MessageContent
from leveret.limits import SPARK_BATCH_BYTES, SPARK_BATCH_RECORDS
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.properties import PropertyColumns, find_properties
from leveret.spark.columns.schema import RAW_PROPERTIES
from leveret.spark.columns.texts import MILLISECONDS_MAX
from leveret.spark.transport import Piece
from leveret.spark.versions import arrow_schema

#: Columns with a value for each message, which are built from the chunk's arrays.
_OWN: Final = ("offset", "timestamp", "body", RAW_PROPERTIES)

#: Columns that depend on the address, on the headers table, and on all properties.
_OF_ADDRESS: Final = ("exchange", "routing_key")
FROM_HEADERS: Final = ("headers", "headers_typed", "kafka_headers", "delivery_count")
_OF_PROPERTIES: Final = ("properties",)

#: Columns that are the same for all messages of a stream.
_OF_STREAM: Final = ("stream", "partition", "redelivered")

#: If more than one in this many messages has distinct property bytes, the properties of all rows
#: are decoded together.
ROWS_PER_DISTINCT: Final = 8

#: The flags of properties that consist of headers only, and of empty properties.
_HEADERS_ONLY: Final = b"\x20\x00"
_NO_PROPERTIES: Final = b"\x00\x00"


class _Sample(MessageContent):
    """A message that represents all messages with the same address or the same properties."""

    __slots__ = ("exchange", "routing_key")

    redelivered = False

    def __init__(self, raw_properties: bytes, exchange: str = "", routing_key: str = "") -> None:
        super().__init__(raw_properties, b"")
        self.exchange = exchange
        self.routing_key = routing_key


class ColumnChunk:
    """A chunk as columns, which knows its intact rows.

    Raises: ChunkDamaged if the header or the arrays are damaged.
    """

    def __init__(self, data: bytes) -> None:
        layout = ChunkLayout(data)
        self._layout = layout
        self._buffer = pa.py_buffer(data)
        count = int(layout.count)
        self.offsets = self._numbers("<i8", count, CHUNK_HEADER_BYTES) + int(layout.base)
        self.timestamps = self._numbers("<i8", count, CHUNK_HEADER_BYTES + 8 * count)
        width = (4 * count + 7) & -8
        at = int(layout.sizes_at)
        self._property_ends = _ends(self._numbers("<u4", count, at), int(layout.property_bytes))
        self._body_ends = _ends(self._numbers("<u4", count, at + width), int(layout.body_bytes))
        self.address_indexes = self._numbers("<u4", count, at + 2 * width)
        self.addresses = [address.wire for address in layout.read_addresses()]
        if count and int(self.address_indexes.max()) >= len(self.addresses):
            raise ChunkDamaged("a chunk's message refers to a missing address")
        if count and not bool((self.offsets[1:] > self.offsets[:-1]).all()):
            raise ChunkDamaged("a chunk's sequences do not ascend")
        #: The indexes of the intact rows, or None if all rows are intact.
        self.sound = None if layout.is_intact() else self._sound(data)

    def _numbers(self, kind: str, count: int, at: int) -> npt.NDArray[Any]:
        return np.frombuffer(self._buffer, kind, count, at)

    def _sound(self, data: bytes) -> npt.NDArray[np.intp]:
        """Return the indexes of the messages whose own digests match."""
        damaged = np.array(Chunk(data).damaged(), np.int64)
        return np.flatnonzero(~np.isin(self.offsets, damaged))

    def bodies(self, start: int, end: int) -> pa.Array:
        """Return the bodies of the rows from `start` up to `end`, without copying them."""
        return self._binary(self._body_ends, int(self._layout.bodies_at), start, end)

    def properties(self, start: int, end: int) -> pa.Array:
        """Return the property bytes of the rows from `start` up to `end`, without copying them."""
        return self._binary(self._property_ends, int(self._layout.properties_at), start, end)

    def body_bytes(self, start: int, end: int) -> int:
        """Return the total size of the bodies of the rows from `start` up to `end`."""
        return int(self._body_ends[end]) - int(self._body_ends[start])

    def _binary(self, ends: npt.NDArray[np.int32], at: int, start: int, end: int) -> pa.Array:
        values = self._buffer.slice(at)
        buffers = [None, pa.py_buffer(ends), values]
        return pa.Array.from_buffers(pa.binary(), end - start, buffers, 0, start)

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the runs of intact rows with consecutive offsets, from `start` up to `end`.

        `start` and `end` are offsets.  Each run is the index of its first row and the index after
        its last row.
        """
        low, high = (int(place) for place in np.searchsorted(self.offsets, (start, end)))
        last = high - 1
        # Offsets ascend, so there is no gap if offsets and indexes have the same distance.
        if self.sound is None and low < high and self._distance(low, last) == last - low:
            yield low, high
            return
        places = np.arange(low, high) if self.sound is None else self.sound
        places = places[(places >= low) & (places < high)]
        if not len(places):
            return
        breaks = np.flatnonzero(np.diff(self.offsets[places]) != 1) + 1
        for run in np.split(places, breaks):
            yield int(run[0]), int(run[-1]) + 1

    def _distance(self, first: int, last: int) -> int:
        """Return the difference between the offsets of two rows."""
        return int(self.offsets[last]) - int(self.offsets[first])


def _ends(sizes: npt.NDArray[np.uint32], total: int) -> npt.NDArray[np.int32]:
    """Return 0 and the running sums of sizes that add up to `total`.  Raises: ChunkDamaged."""
    if int(sizes.sum(dtype=np.int64)) != total or total > np.iinfo(np.int32).max:
        raise ChunkDamaged("a chunk's lengths do not add up")
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=ends[1:])
    return ends


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """One or more rows of a chunk, from index `start` up to, but not including, `end`."""

    chunk: ColumnChunk
    start: int
    end: int


class ChunkBatchBuilder:
    """Builds record batches of one schema from the chunks of one stream."""

    def __init__(
        self,
        stream: str,
        schema: StructType,
        partition: int = 0,
        rows_per_distinct: int = ROWS_PER_DISTINCT,
    ) -> None:
        self._rows_per_distinct = rows_per_distinct
        self.schema: pa.Schema = arrow_schema(schema)

        def of(names: tuple[str, ...]) -> _Columns | None:
            fields = [field for field in schema.fields if field.name in names]
            if not fields:
                return None
            return _Columns(BatchBuilder(stream, StructType(fields), partition))

        self._of_stream = of(_OF_STREAM)
        self._of_address = of(_OF_ADDRESS)
        self._of_headers = of(FROM_HEADERS)
        self._of_properties = of(_OF_PROPERTIES)

    def build(self, parts: list[ChunkRows]) -> pa.RecordBatch:
        """Return one batch with the rows of all parts."""
        columns = {field.name: _own(field, parts) for field in self.schema if field.name in _OWN}
        if self._of_stream is not None:
            count = sum(part.end - part.start for part in parts)
            columns |= self._of_stream.repeated(_Sample(_NO_PROPERTIES), count)
        if self._of_address is not None:
            columns |= self._of_address.taken(*_by_address(parts))
        if self._of_headers is not None or self._of_properties is not None:
            columns |= self.decoded(_joined([p.chunk.properties(p.start, p.end) for p in parts]))
        arrays = [columns[field.name] for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def decoded(self, raw: pa.Array) -> dict[str, pa.Array]:
        """Return the columns that are decoded from an array of property bytes."""
        columns: dict[str, pa.Array] = {}
        if (common := _common(raw)) is not None:
            for makes in (self._of_headers, self._of_properties):
                if makes is not None:
                    columns |= makes.repeated(_Sample(common), len(raw))
            return columns
        encoded = raw.dictionary_encode()
        if self._rows_per_distinct * len(encoded.dictionary) > len(raw):
            found = find_properties(raw)
            if found is not None:
                return self._walked(found)
        samples = [_Sample(distinct) for distinct in encoded.dictionary.to_pylist()]
        for makes in (self._of_headers, self._of_properties):
            if makes is not None:
                columns |= makes.taken(samples, encoded.indices)
        return columns

    def _walked(self, found: PropertyColumns) -> dict[str, pa.Array]:
        """Return the columns of properties that were decoded for all rows at once."""
        columns: dict[str, pa.Array] = {}
        if self._of_headers is not None:
            encoded = found.headers().dictionary_encode()
            tables = encoded.dictionary.to_pylist()
            samples = [_Sample(_HEADERS_ONLY + t if t else _NO_PROPERTIES) for t in tables]
            columns |= self._of_headers.taken(samples, encoded.indices)
        if self._of_properties is not None:
            for field in self._of_properties.schema:
                columns[field.name] = found.struct(field.type)
        return columns


class _Columns:
    """Builds some columns of a batch from sample messages, each of which represents many."""

    def __init__(self, builder: BatchBuilder) -> None:
        self.schema: pa.Schema = builder.schema
        self._builder = builder
        # The values that all rows of the last batch shared, and their columns for reuse.
        self._common: tuple[bytes, str, str] | None = None
        self._repeated: dict[str, pa.Array] = {}
        self._count = 0

    def taken(self, samples: list[_Sample], places: pa.Array) -> dict[str, pa.Array]:
        """Return columns whose rows are the samples at the given indexes."""
        if len(samples) == 1:
            return self.repeated(samples[0], len(places))
        columns = self._of(samples)
        return {name: _column_taken(column, places) for name, column in columns.items()}

    def repeated(self, sample: _Sample, count: int) -> dict[str, pa.Array]:
        """Return columns of `count` rows, all equal to the sample."""
        common = sample.raw_properties, sample.exchange, sample.routing_key
        if common != self._common or count > self._count:
            places = pa.array(np.zeros(count, np.int8))
            columns = self._of([sample])
            self._repeated = {n: _column_taken(column, places) for n, column in columns.items()}
            self._common, self._count = common, count
        return {name: column.slice(0, count) for name, column in self._repeated.items()}

    def _of(self, samples: list[_Sample]) -> dict[str, pa.Array]:
        batch = self._builder.build(0, samples)
        return dict(zip(batch.schema.names, batch.columns, strict=True))


def _common(raw: pa.Array) -> bytes | None:
    """Return the bytes that all values of a binary array share, or None if they differ."""
    count = len(raw)
    if not count or raw[0] != raw[count - 1]:
        return None
    ends = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + count + 1]
    size = int(ends[1]) - int(ends[0])
    if not bool((np.diff(ends) == size).all()):
        return None
    if not size:
        return b""
    whole = np.frombuffer(raw.buffers()[2], np.uint8)[int(ends[0]) : int(ends[-1])]
    # Each row is compared with the one before it, because NumPy compares short rows slowly.
    return whole[:size].tobytes() if np.array_equal(whole[size:], whole[:-size]) else None


def _column_taken(column: pa.Array, places: pa.Array) -> pa.Array:
    """Return the values of a column at the given indexes.

    The fields of a struct are taken one by one.  This needs a third of the time, because most
    properties are absent from most messages.
    """
    if pa.types.is_struct(column.type):
        fields = [_column_taken(field, places) for field in column.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(column.type))
    if column.null_count == len(column):
        return pa.nulls(len(places), column.type)
    return column.take(places)


def _own(field: pa.Field, parts: list[ChunkRows]) -> pa.Array:
    """Return a column with a value for each message."""
    if field.name == "body":
        return _joined([p.chunk.bodies(p.start, p.end) for p in parts])
    if field.name == RAW_PROPERTIES:
        return _joined([p.chunk.properties(p.start, p.end) for p in parts])
    if field.name == "offset":
        return pa.array(np.concatenate([p.chunk.offsets[p.start : p.end] for p in parts]))
    moments = np.concatenate([p.chunk.timestamps[p.start : p.end] for p in parts])
    if moments.min() >= 0 and moments.max() <= MILLISECONDS_MAX:
        return pa.array(moments * 1000).view(field.type)
    wrong = (moments < 0) | (moments > MILLISECONDS_MAX)
    micros = np.where(wrong, 0, moments) * 1000
    return pa.array(micros, pa.int64(), mask=wrong).view(field.type)


def _by_address(parts: list[ChunkRows]) -> tuple[list[_Sample], pa.Array]:
    """Return a sample for each distinct address, and the index of each row's sample."""
    known: dict[bytes, int] = {}
    numbers = [[known.setdefault(wire, len(known)) for wire in p.chunk.addresses] for p in parts]
    samples = [_sample_of_address(wire) for wire in known]
    if len(samples) == 1:
        return samples, pa.array(np.zeros(sum(p.end - p.start for p in parts), np.int8))
    places = [
        np.array(own, np.int32)[part.chunk.address_indexes[part.start : part.end]]
        for own, part in zip(numbers, parts, strict=True)
    ]
    return samples, pa.array(np.concatenate(places))


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _sample_of_address(wire: bytes) -> _Sample:
    """Return a sample for an address, encoded as two AMQP short strings."""
    key = 1 + wire[0]
    return _Sample(_NO_PROPERTIES, _text(wire[1:key]), _text(wire[key + 1 :]))


def _text(raw: bytes) -> str:
    """Decode text, with bytes that are not UTF-8 escaped."""
    return raw.decode("utf-8", "backslashreplace")


class Pieces:
    """Cuts the chunks of an offset range into pieces of consecutive offsets, in one pass."""

    def __init__(
        self,
        builder: ChunkBatchBuilder,
        start: int,
        end: int,
        records_max: int = SPARK_BATCH_RECORDS,
        bytes_max: int = SPARK_BATCH_BYTES,
    ) -> None:
        self._builder = builder
        self._end = end
        self._records_max = records_max
        self._bytes_max = bytes_max
        #: The next wanted offset.
        self.position = start
        self._start = start
        self._parts: list[ChunkRows] = []
        self._records = 0
        self._bytes = 0

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Add a chunk, advance `position`, and yield the pieces that are now complete.

        The rows of an unreadable chunk are missing from the pieces.
        """
        try:
            chunk = ColumnChunk(data)
        except ChunkDamaged:
            return
        for start, end in chunk.runs(self.position, self._end):
            first = int(chunk.offsets[start])
            if first != self._start + self._records:
                yield from self.flush()
            if not self._parts:
                self._start = first
            self._parts.append(ChunkRows(chunk, start, end))
            self._records += end - start
            self._bytes += chunk.body_bytes(start, end)
            self.position = first + end - start
            if self._records >= self._records_max or self._bytes >= self._bytes_max:
                yield from self.flush()

    def flush(self) -> Iterator[Piece]:
        """Yield the collected rows, if there are any."""
        if self._parts:
            batch = self._builder.build(self._parts)
            piece = Piece(self._start, self._start + self._records, batch)
            self._start = piece.end
            self._parts = []
            self._records = self._bytes = 0
            yield piece
