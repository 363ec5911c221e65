"""Arrow batches as the bytes of AMQP publishes, many rows at once and without objects for rows.

The common parts of rows (method, headers, properties, sizes) are encoded once by the client and
reused; bodies are sliced from the batch's buffer; one `join` puts each piece together.

Invariant: the bytes are those that the client library writes for the same messages one by one (a
property test compares them).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from leveret.client.publish_frames import FRAME_END_OCTET, PublishFrames
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.spark.write.batches import RowBatches
from leveret.spark.write.rows import (
    PUBLISHER,
    PUBLISHING_ID,
    STAGED_EXCHANGE,
    STAGED_ROUTING_KEY,
    Address,
    Distinct,
    IsExchange,
    RawProperties,
    RowError,
    RowProperties,
    addresses,
    paired,
    row_properties,
)
from leveret.spark.write.schema import Layout

#: The piece that a sink passes to the socket: one piece is sent while the next is encoded.
SPARK_WRITE_PIECE_RECORDS: Final = 4_096
SPARK_WRITE_PIECE_BYTES: Final = 1024 * 1024


#: From this value on, an integer in a table takes eight bytes; below it, four.
_WIDE_FROM: Final = 2**31

#: The number of parts kept for reuse; if there are more, the keys do not repeat: all are dropped.
_KEPT_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the sink adds to rows: the flag `mandatory`, a staging queue, a publisher.

    The headers of staged rows say where each row goes, unless the queue has `one_place` for all
    rows.
    """

    mandatory: bool
    staging_queue: str | None = None
    publisher: str | None = None
    one_place: bool = False


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Some consecutive rows: `count` publishes, of one row each or of all of them."""

    frames: bytes
    count: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """The common parts of rows with one address and one set of properties.

    `method` goes up to the body's size; the properties are split where a publishing id is inserted.
    """

    method: bytes
    before_id: bytes
    after_id: bytes


class Encoder:
    """Encodes batches of one layout for one channel, in pieces of a limited number of rows."""

    def __init__(
        self,
        layout: Layout,
        frames: PublishFrames,
        envelope: Envelope,
        piece_records: int = SPARK_WRITE_PIECE_RECORDS,
        is_exchange: IsExchange | None = None,
    ) -> None:
        self._is_exchange = is_exchange
        self._piece_records = piece_records
        self._layout = layout
        self._frames = frames
        self._envelope = envelope
        self._shapes: dict[tuple[Address, RowProperties | RawProperties, bool], _Shape] = {}
        self._sizes: dict[int, bytes] = {}
        self._starts: dict[int, bytes] = {}
        # For the last shape: the bytes before and after the id, by the body's size.
        self._last: _Shape | None = None
        self._heads: dict[int, tuple[bytes, bytes]] = {}

    def encode(self, batch: pa.RecordBatch, ids: Any = None) -> Iterator[EncodedRows]:
        """Yield the publishes of a batch; `ids` are the publishing ids, if there are any.

        Raises: RowError.
        """
        name = self._layout.body
        bodies = batch.column(name)
        if bodies.null_count:
            raise RowError(f"column {name!r} is null: a message has a body, which may be empty")
        offsets = _offsets(bodies)
        start, count = 0, batch.num_rows
        batches: RowBatches | None = None
        queue = self._envelope.staging_queue
        if queue is not None and self._envelope.one_place:
            said = row_properties(batch, self._layout)
            batches = RowBatches(bodies, offsets, said, self._frames.properties_bytes_max)
        while start < count:
            if queue is not None and batches is not None and (end := batches.end(start)) > start:
                yield EncodedRows(self._frames.batch(queue, batches.body(start, end)), 1)
                start = end
                continue
            most = offsets[start] + SPARK_WRITE_PIECE_BYTES
            full = int(np.searchsorted(offsets, most, side="right")) - 1
            end = min(count, start + self._piece_records, max(start + 1, full))
            numbers = None
            if ids is not None:
                if ids[start] < _WIDE_FROM <= ids[end - 1]:
                    end = int(np.searchsorted(ids, _WIDE_FROM))
                numbers = ids[start:end]
            rows = batch.slice(start, end - start)
            yield EncodedRows(self._piece(rows, offsets[start : end + 1], numbers), end - start)
            start = end

    def _piece(self, rows: pa.RecordBatch, offsets: Any, ids: Any) -> bytes:
        """Return the publishes of some rows."""
        where = addresses(rows, self._layout, self._is_exchange)
        said = paired(where, row_properties(rows, self._layout))
        wide = ids is not None and bool(ids[0] >= _WIDE_FROM)
        shapes = [self._shape(address, properties, wide) for address, properties in said.values]
        sizes = np.diff(offsets).tolist()
        bodies = self._bodies(rows.column(self._layout.body), offsets, sizes)
        stamps = None if ids is None else _stamps(ids, wide)
        if said.rows is None:
            parts = self._of_one(shapes[0], sizes, stamps)
        else:
            parts = self._of_many(Distinct(shapes, said.rows), sizes, stamps)
        return _interleaved([*parts, bodies, [FRAME_END_OCTET] * len(sizes)])

    def _bodies(self, column: pa.Array, offsets: Any, sizes: list[int]) -> list[bytes]:
        """Return the bodies; a body of several frames includes the frame headers in between."""
        first, last = int(offsets[0]), int(offsets[-1])
        buffer = column.buffers()[2]
        data = b"" if first == last else buffer.slice(first, last - first).to_pybytes()
        ends = (offsets - first).tolist()
        bodies = [data[start:end] for start, end in itertools.pairwise(ends)]
        most = self._frames.body_bytes_max
        if max(sizes) > most:
            bodies = [self._frames.long_body(b) if len(b) > most else b for b in bodies]
        return bodies

    # -- the bytes before a body -------------------------------------------------------------------

    def _of_one(
        self, shape: _Shape, sizes: list[int], stamps: list[bytes] | None
    ) -> list[list[bytes]]:
        """Return the bytes before the bodies of rows that differ only in size and id."""
        if shape is not self._last or len(self._heads) > _KEPT_MAX:
            self._last = shape
            self._heads = {}
        heads = self._heads
        for size in set(sizes).difference(heads):
            before = shape.method + self._frames.body_size(size) + shape.before_id
            heads[size] = before, shape.after_id + self._start(size)
        if stamps is None:
            whole = {size: b"".join(heads[size]) for size in set(sizes)}
            return [[whole[size] for size in sizes]]
        return [[heads[size][0] for size in sizes], stamps, [heads[size][1] for size in sizes]]

    def _of_many(
        self, shapes: Distinct[_Shape], sizes: list[int], stamps: list[bytes] | None
    ) -> list[list[bytes]]:
        """Return the bytes before the bodies of rows that differ in more."""
        kept_sizes, kept_starts = self._sizes, self._starts
        if len(kept_sizes) > _KEPT_MAX:
            kept_sizes.clear()
            kept_starts.clear()
        for size in set(sizes).difference(kept_sizes):
            kept_sizes[size] = self._frames.body_size(size)
            kept_starts[size] = self._start(size)
        rows = [shapes.values[row] for row in shapes.rows.tolist()]
        parts = [
            [shape.method for shape in rows],
            [kept_sizes[size] for size in sizes],
            [shape.before_id for shape in rows],
        ]
        if stamps is not None:
            parts += [stamps, [shape.after_id for shape in rows]]
        return [*parts, [kept_starts[size] for size in sizes]]

    def _start(self, size: int) -> bytes:
        """Return the bytes right before a body; a long body already includes its own."""
        return b"" if size > self._frames.body_bytes_max else self._frames.body_start(size)

    def _shape(
        self, address: Address, properties: RowProperties | RawProperties, wide: bool
    ) -> _Shape:
        """Return the common parts of rows with an address and properties."""
        key = (address, properties, wide)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= _KEPT_MAX:
                self._shapes.clear()
            shape = self._shapes[key] = self._made(address, properties, wide)
        return shape

    def _made(
        self, address: Address, properties: RowProperties | RawProperties, wide: bool
    ) -> _Shape:
        """Encode a shape.  Raises: RowError for a value that is too long."""
        envelope, own = self._envelope, dict[str, object]()
        exchange, routing_key = address
        if len(routing_key.encode()) > SHORT_STRING_BYTES_MAX:
            raise RowError(
                f"a row to exchange {exchange!r}: its routing key, the column 'routing_key' or "
                f"'key', is too long: the maximum is {SHORT_STRING_BYTES_MAX} bytes"
            )
        if envelope.staging_queue is not None and not envelope.one_place:
            own = {STAGED_EXCHANGE: exchange, STAGED_ROUTING_KEY: routing_key}
        if envelope.staging_queue is not None:
            exchange, routing_key = "", envelope.staging_queue
        if envelope.publisher is not None:
            own |= {PUBLISHER: envelope.publisher, PUBLISHING_ID: _WIDE_FROM if wide else 0}
        encoded = properties.encode(own)
        try:
            method = self._frames.method(exchange, routing_key, envelope.mandatory)
            method += self._frames.header_start(len(encoded))
        except ValueError as error:
            raise RowError(f"a row to {address}: {error}") from None
        if envelope.publisher is None or isinstance(properties, RawProperties):
            return _Shape(method, encoded, b"")
        end = len(properties.encode_to_headers(own))
        return _Shape(method, encoded[: end - (8 if wide else 4)], encoded[end:])


def _offsets(bodies: pa.Array) -> Any:
    """Return the start of each body in its buffer, and the end of the last one."""
    large = pa.types.is_large_binary(bodies.type) or pa.types.is_large_string(bodies.type)
    offsets = np.frombuffer(bodies.buffers()[1], np.int64 if large else np.int32)
    return offsets[bodies.offset : bodies.offset + len(bodies) + 1].astype(np.int64)


def _stamps(ids: Any, wide: bool) -> list[bytes]:
    """Return publishing ids in a table's encoding."""
    width = 8 if wide else 4
    raw = ids.astype(f">i{width}").tobytes()
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def _interleaved(parts: list[list[bytes]]) -> bytes:
    """Return the first of each part, then the second of each, and so on."""
    width = len(parts)
    pieces = [b""] * (width * len(parts[0]))
    for index, part in enumerate(parts):
        pieces[index::width] = part
    return b"".join(pieces)
