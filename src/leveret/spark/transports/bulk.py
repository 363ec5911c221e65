"""The bulk transport, which reads stored chunks over HTTP and works only with Leveret.

Chunks are converted to Arrow batches without a loop over messages.  The broker sends whole chunks,
so a response may begin before the range and end after it; the transport cuts off the excess.  From
a damaged chunk, only intact messages are returned, if any.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import StructType

from leveret.chunk import CHUNK_HEADER_BYTES, ChunkDamaged, chunk_size
from leveret.spark.columns.chunks import ChunkBatchBuilder, ColumnChunk, Pieces
from leveret.spark.connection.http_link import HttpLink
from leveret.spark.options.read import Options
from leveret.spark.transport import (
    Bounds,
    Interrupted,
    Piece,
    QueryReport,
    Redeclared,
    Tail,
    Transport,
)

#: The maximum bytes of chunks in a response, which are sent in a second or less.
_ANSWER_BYTES: Final = 256 * 1024 * 1024


_END: Final = "Leveret-End-Offset"
_STREAM_ID: Final = "Leveret-Stream-Id"


class BulkTransport(Transport):
    """One HTTP connection for one stream, opened on first use."""

    def __init__(self, options: Options, stream: str, schema: StructType) -> None:
        self._link = HttpLink(options, stream)
        self._builder = ChunkBatchBuilder(stream, schema, options.partition_of(stream))

    # -- the ends of the stream --------------------------------------------------------------------

    def earliest(self) -> int:
        """Return the offset of the first message.  Raises: Interrupted; NotFound (404)."""
        return self.bounds().earliest

    def tail(self) -> Tail:
        """Return the stream's end and its id.  Raises: Interrupted; NotFound (404)."""
        facts = self._link.json()
        mean = facts["bytes"] / max(1, facts["messages"])
        return Tail(facts["next_offset"], facts.get("stream_id"), mean)

    def report(self, report: QueryReport) -> None:
        """Report the query to the broker with each following request."""
        self._link.told = report.fields()

    def bounds(self) -> Bounds:
        """Return both ends.  Raises: Interrupted; NotFound (404)."""
        facts = self._link.json()
        return Bounds(facts["first_offset"], facts["next_offset"], facts.get("stream_id"))

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset at or after a time.  Raises: Interrupted; NotFound (404)."""
        return int(self._link.json("/offset", timestamp=max(0, timestamp_ms))["offset"])

    def end_at(self, timestamp_ms: int) -> int:
        """Return the offset after all messages before a time.  Raises: Interrupted; NotFound."""
        return int(self._link.json("/offset", before=max(0, timestamp_ms))["offset"])

    def mean_bytes(self, start: int, end: int) -> float:
        """Return the mean body size in the range's first chunk.  Raises: Interrupted; NotFound."""
        if start < end:
            with self._link.ask("/chunks", {"offset": start, "end": end, "max_bytes": 1}) as answer:
                for data in chunks_of(answer):
                    chunk = ColumnChunk(data)
                    count = len(chunk.offsets)
                    return chunk.body_bytes(0, count) / max(1, count)
        return 0

    # -- reading -----------------------------------------------------------------------------------

    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range.  Raises: Interrupted; NotFound; Redeclared."""
        pieces = Pieces(self._builder, start, end)
        position = start
        try:
            while position < end:
                query = {"offset": position, "end": end, "max_bytes": _ANSWER_BYTES}
                with self._link.ask("/chunks", query) as answer:
                    found = answer.getheader(_STREAM_ID)
                    if stream_id is not None and found not in (None, stream_id):
                        raise Redeclared(stream_id, found)
                    went_to = int(answer.getheader(_END, "0"))
                    for data in chunks_of(answer):
                        yield from pieces.feed(data)
                if went_to <= position:
                    break  # no more messages, up to the end of the stream
                position = went_to
        except (Interrupted, Redeclared):
            # Messages that have arrived are intact and need not be sent again.
            yield from pieces.flush()
            raise
        yield from pieces.flush()

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._link.close()


def chunks_of(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the chunks of a response.  Raises: HTTPException if it is truncated or invalid."""
    while head := answer.read(CHUNK_HEADER_BYTES):
        if len(head) < CHUNK_HEADER_BYTES:
            raise http.client.IncompleteRead(head)
        try:
            rest = int(chunk_size(head)) - len(head)
        except ChunkDamaged as error:
            # The broker checks headers, so this one was damaged in transit.
            raise http.client.HTTPException(str(error)) from None
        data = answer.read(rest)
        if len(data) < rest:
            raise http.client.IncompleteRead(data, rest - len(data))
        yield head + data
