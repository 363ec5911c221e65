"""Streams in memory: a second implementation of the data source's transport, for tests without JVM.

A stream can be truncated at its start (retention), lose messages in its middle, and interrupt its
readers; its rows are built like those from a broker.  Streams are found by name in this process, so
that a pickled reader finds them again.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from leveret.client import BasicProperties
from leveret.errors import NotFound
from leveret.spark.columns.messages import STREAM_TIMESTAMP, BatchBuilder
from leveret.spark.options.read import Options
from leveret.spark.source import LeveretDataSource
from leveret.spark.stream.finder import StreamAccess
from leveret.spark.transport import Bounds, Interrupted, Piece, Redeclared, Tail, Transport

PIECE_RECORDS = 7


@dataclass(frozen=True)
class Delivery:
    """A message as received by a transport."""

    body: bytes = b""
    exchange: str = ""
    routing_key: str = ""
    properties: BasicProperties = field(default_factory=BasicProperties)
    redelivered: bool = False
    timestamp_ms: int | None = None

    @property
    def raw_properties(self) -> bytes:
        """The bytes of the properties."""
        return self.properties.encode()

    def on_the_wire(self, **own: object) -> Delivery:
        """Return the message with the headers that a broker adds, and with `own` ones."""
        headers: dict[str, object] = {**(self.properties.headers or {}), **own}
        if self.timestamp_ms is not None:
            headers[STREAM_TIMESTAMP] = self.timestamp_ms
        fields = {name: getattr(self.properties, name) for name in BasicProperties.FIELDS}
        properties = BasicProperties(**{**fields, "headers": headers or None})
        return dataclasses.replace(self, properties=properties, timestamp_ms=None)


@dataclass
class MemoryStream:
    """Deliveries by offset, and the faults to inject while they are read."""

    messages: dict[int, Delivery] = field(default_factory=dict)
    next_offset: int = 0
    #: The numbers of pieces after which the next reads are interrupted.
    interruptions: list[int] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    #: Offsets that never had a message, as in RabbitMQ.
    left_out: set[int] = field(default_factory=set)
    #: Distinguishes it from other streams of its name; None for RabbitMQ, which has no such id.
    stream_id: str | None = None

    def append(self, *bodies: bytes) -> None:
        """Add messages, one each second."""
        for body in bodies:
            self.add(Delivery(body, routing_key=f"k{len(body)}"))

    def add(self, message: Delivery) -> None:
        """Add a message, a second after the previous one."""
        timed = dataclasses.replace(message, timestamp_ms=1000 * self.next_offset)
        self.messages[self.next_offset] = timed
        self.next_offset += 1

    def truncate(self, first: int) -> None:
        """Remove the messages below an offset, as retention does."""
        for offset in [o for o in self.messages if o < first]:
            del self.messages[offset]


#: The streams by name.
STREAMS: dict[str, MemoryStream] = {}


class MemoryTransport(Transport):
    """The transport of a stream in this process."""

    def __init__(self, options: Options, stream: str, schema: StructType) -> None:
        self._name = stream
        self._builder = BatchBuilder(stream, schema, options.partition_of(stream))

    @property
    def _stream(self) -> MemoryStream:
        if self._name not in STREAMS:
            raise NotFound(f"no queue '{self._name}' in vhost '/'")
        return STREAMS[self._name]

    def earliest(self) -> int:
        return min(self._stream.messages, default=self._stream.next_offset)

    def tail(self) -> Tail:
        return Tail(self._stream.next_offset, self._stream.stream_id)

    def bounds(self) -> Bounds:
        earliest = self.earliest()
        return Bounds(earliest, max(earliest, self.latest()), self._stream.stream_id)

    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        stream = self._stream
        if stream_id is not None and stream.stream_id not in (None, stream_id):
            raise Redeclared(stream_id, stream.stream_id or "")
        stream.reads.append((start, end))
        allowed = stream.interruptions.pop(0) if stream.interruptions else None
        for count, piece in enumerate(self._pieces(start, end)):
            if count == allowed:
                raise Interrupted("as the test wants it")
            yield piece
        if allowed is not None:
            raise Interrupted("as the test wants it")

    def _pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield messages of consecutive offsets, a few at a time."""
        run: list[int] = []
        for offset in range(start, end):
            if offset in self._stream.messages:
                run.append(offset)
            if run and (len(run) == PIECE_RECORDS or offset not in self._stream.messages):
                yield self._piece(run)
                run = []
        if run:
            yield self._piece(run)

    def _piece(self, run: list[int]) -> Piece:
        messages = [self._stream.messages[offset].on_the_wire() for offset in run]
        return Piece(run[0], run[-1] + 1, self._builder.build(run[0], messages))

    def offset_at(self, timestamp_ms: int) -> int:
        for offset, message in sorted(self._stream.messages.items()):
            if (message.timestamp_ms or 0) >= timestamp_ms:
                return offset
        return self.latest()

    def end_at(self, timestamp_ms: int) -> int:
        for offset, message in sorted(self._stream.messages.items(), reverse=True):
            if (message.timestamp_ms or 0) < timestamp_ms:
                return offset + 1
        return self.earliest()

    def mean_bytes(self, start: int, end: int) -> float:
        bodies = [m.body for o, m in self._stream.messages.items() if start <= o < end]
        return sum(map(len, bodies)) / max(1, len(bodies))

    def is_loss(self, missing: int) -> bool:
        return missing not in self._stream.left_out

    def close(self) -> None:
        """Do nothing."""


class MemorySource(LeveretDataSource):
    """The data source on streams of this process."""

    def access(self) -> StreamAccess:
        return StreamAccess(MemoryTransport, find_in_memory)


def find_in_memory(options: Options) -> tuple[str, ...]:
    """Return the streams of this process that options select."""
    if options.super_stream is not None:
        names = (f"{options.super_stream}-{number}" for number in itertools.count())
        return tuple(itertools.takewhile(STREAMS.__contains__, names))
    assert options.stream_pattern is not None
    return tuple(n for n in sorted(STREAMS) if re.fullmatch(options.stream_pattern, n))
