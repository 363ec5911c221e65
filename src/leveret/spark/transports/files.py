"""The transport for streams in the data directory of a stopped broker, or in a backup.

The chunks on disk have the same format as those that the bulk transport receives.  Each executor
needs the directory at the same path.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyspark.sql.types import StructType

from leveret.chunk import ChunkDamaged
from leveret.spark.columns.chunks import ChunkBatchBuilder, ColumnChunk, Pieces
from leveret.spark.options.read import Options
from leveret.spark.transport import Bounds, Piece, Redeclared, Tail, Transport
from leveret.spark.transports.store_directory import StoredRange, StoredStream, open_stream


class FilesTransport(Transport):
    """One stream of a data directory, which is opened on first use."""

    def __init__(self, options: Options, stream: str, schema: StructType) -> None:
        self._options = options
        self._name = stream
        self._builder = ChunkBatchBuilder(stream, schema, options.partition_of(stream))
        self._opened: StoredStream | None = None

    def _stream(self) -> StoredStream:
        if self._opened is None:
            self._opened = open_stream(self._options, self._name)
        return self._opened

    # -- the ends of the stream --------------------------------------------------------------------

    def earliest(self) -> int:
        """Return the offset of the first message.  Raises: NotFound (404); OptionError."""
        return self._stream().earliest

    def tail(self) -> Tail:
        """Return the stream's end and its id.  Raises: NotFound (404); OptionError."""
        stream = self._stream()
        return Tail(stream.latest, stream.stream_id)

    def bounds(self) -> Bounds:
        """Return both ends.  Raises: NotFound (404); OptionError."""
        stream = self._stream()
        return Bounds(stream.earliest, stream.latest, stream.stream_id)

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset at or after a time.  Raises: NotFound (404); OptionError."""
        stream = self._stream()
        for part in stream.parts:
            if stream.reaches(part, timestamp_ms) and (chunk := self._chunk(part)) is not None:
                late = (chunk.timestamps >= timestamp_ms) & (chunk.offsets >= stream.earliest)
                if late.any():
                    return int(chunk.offsets[np.argmax(late)])
        return stream.latest

    def end_at(self, timestamp_ms: int) -> int:
        """Return the offset after all messages before a time.  Raises: NotFound; OptionError."""
        stream = self._stream()
        for part in reversed(stream.parts):
            if stream.begins_before(part, timestamp_ms):
                chunk = self._chunk(part)
                if chunk is None:
                    return part.last + 1
                early = np.flatnonzero(chunk.timestamps < timestamp_ms)
                if len(early):
                    return max(stream.earliest, int(chunk.offsets[early[-1]]) + 1)
        return stream.earliest

    def mean_bytes(self, start: int, end: int) -> float:
        """Return the mean body size in the range's first chunk.  Raises: NotFound; OptionError."""
        for part in self._stream().parts:
            if part.first < end and start <= part.last and (chunk := self._chunk(part)) is not None:
                count = len(chunk.offsets)
                return chunk.body_bytes(0, count) / max(1, count)
        return 0

    def _chunk(self, part: StoredRange) -> ColumnChunk | None:
        try:
            return ColumnChunk(self._stream().chunk(part))
        except ChunkDamaged:
            return None

    # -- reading -----------------------------------------------------------------------------------

    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range.  Raises: NotFound; OptionError; Redeclared."""
        stream = self._stream()
        found = stream.stream_id
        if stream_id is not None and found not in (None, stream_id):
            raise Redeclared(stream_id, found)
        end = min(end, stream.latest)
        pieces = Pieces(self._builder, max(start, stream.earliest), end)
        for part in stream.parts:
            if part.first < end and start <= part.last:
                yield from pieces.feed(stream.chunk(part))
        yield from pieces.flush()

    def close(self) -> None:
        """Release the directory."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
