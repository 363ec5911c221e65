"""Messages of a queue on their way through the spool: as they came, then as rows.

The driver writes property bytes and names as they came; a task decodes them, so that the one driver
does little for each message and the many tasks do the rest.  Spooled messages know nothing of the
columns that a query wants: another schema reads them as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from leveret.client import BasicProperties, Message
from leveret.client.message import Content
from leveret.spark.columns import BatchBuilder

SCHEMA: Final = pa.schema(
    [
        pa.field("exchange", pa.binary(), nullable=False),
        pa.field("routing_key", pa.binary(), nullable=False),
        pa.field("redelivered", pa.bool_(), nullable=False),
        pa.field("properties", pa.binary(), nullable=False),
        pa.field("body", pa.large_binary(), nullable=False),
    ]
)


class SpooledMessage:
    """A message as a row is made of it; its properties are decoded when first asked for."""

    __slots__ = ("_content", "exchange", "redelivered", "routing_key")

    def __init__(
        self, exchange: bytes, routing_key: bytes, redelivered: bool, properties: bytes, body: bytes
    ) -> None:
        self.exchange = exchange.decode("utf-8", "surrogateescape")
        self.routing_key = routing_key.decode("utf-8", "surrogateescape")
        self.redelivered = redelivered
        self._content = Content(properties, body)

    @property
    def body(self) -> bytes:
        """The body."""
        return self._content.body

    @property
    def properties(self) -> BasicProperties:
        """The properties."""
        return self._content.properties

    @property
    def headers(self) -> dict[str, object]:
        """The properties' headers."""
        return self._content.headers


def to_spool(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as the spool keeps them."""
    columns = [
        [m.exchange.encode("utf-8", "surrogateescape") for m in messages],
        [m.routing_key.encode("utf-8", "surrogateescape") for m in messages],
        [m.redelivered for m in messages],
        [m.raw_properties for m in messages],
        [m.body for m in messages],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def to_rows(
    builder: BatchBuilder, start: int, spooled: pa.RecordBatch, records_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield spooled messages as rows, numbered from `start`, so many at a time."""
    for first in range(0, spooled.num_rows, records_max):
        piece = spooled.slice(first, records_max)
        columns = [piece.column(name).to_pylist() for name in SCHEMA.names]
        messages = [SpooledMessage(*values) for values in zip(*columns, strict=True)]
        yield builder.build(start + first, messages)
