"""The rows' destinations and properties, without bodies, each distinct value once.

Most rows repeat each other, so a batch is returned as its distinct addresses and properties and,
for each row, their index.  Objects for each row are made only if a column asks for them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from leveret.client import BasicProperties
from leveret.spark.errors import SourceError
from leveret.spark.write.schema import Layout

T = TypeVar("T")

#: Exchange and routing key.
Address = tuple[str, str]

#: Pairs of a header's name and value; None without headers.
Headers = tuple[tuple[str, str | None], ...] | None

#: The sink's own headers: those of rows under these names are dropped.
PUBLISHER: Final = "x-publisher"
PUBLISHING_ID: Final = "x-publishing-id"
STAGED_EXCHANGE: Final = "x-staged-exchange"
STAGED_ROUTING_KEY: Final = "x-staged-routing-key"
RESERVED: Final = frozenset({PUBLISHER, PUBLISHING_ID, STAGED_EXCHANGE, STAGED_ROUTING_KEY})

#: The `delivery_mode` of a message without one: it survives a restart of the broker.
PERSISTENT: Final = 2


class RowError(SourceError, ValueError):
    """A row cannot become a message; the text names the column."""


@dataclass(frozen=True, slots=True)
class Distinct(Generic[T]):
    """The distinct values of a batch; `rows`: each row's index, None if all have the first."""

    values: list[T]
    rows: Any = None  # an array of numpy's

    def index(self) -> Any:
        """Return each row's index, or 0 for all of them."""
        return 0 if self.rows is None else self.rows


def paired(left: Distinct[Any], right: Distinct[Any]) -> Distinct[tuple[Any, Any]]:
    """Return the pairs that rows have."""
    if left.rows is None and right.rows is None:
        return Distinct([(left.values[0], right.values[0])])
    width = len(right.values)
    found, rows = np.unique(left.index() * width + right.index(), return_inverse=True)
    pairs = [(left.values[code // width], right.values[code % width]) for code in found.tolist()]
    return Distinct(pairs, rows)


# -- addresses -------------------------------------------------------------------------------------


def addresses(batch: pa.RecordBatch, layout: Layout) -> Distinct[Address]:
    """Return the addresses of rows.  Raises: RowError for a row without one."""
    exchange: Distinct[str] = Distinct([layout.exchange or ""])
    routing_key: Distinct[str] = Distinct([layout.routing_key or ""])
    if layout.exchange is None:
        exchange = _texts(batch, "exchange", None)
    if layout.by_stream:
        routing_key = _texts(batch, "stream", None)
    elif layout.routing_key is None:
        routing_key = _texts(batch, "routing_key", "")
    return paired(exchange, routing_key)


def _texts(batch: pa.RecordBatch, name: str, default: str | None) -> Distinct[str]:
    """Return a column of text, null as `default`.  Raises: RowError for a null without one."""
    column = batch.column(name)
    if column.null_count:
        if default is None:
            raise RowError(f"column {name!r} is null: nothing says where the row goes")
        column = pc.fill_null(column, default)
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) == 1:
        return Distinct(encoded.dictionary.to_pylist())
    return Distinct(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64))


# -- properties ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowProperties:
    """The headers of a row and its properties, in the order of `names`."""

    headers: Headers = None
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()

    def encode(self, own_headers: dict[str, object]) -> bytes:
        """Return the property bytes.  Raises: RowError."""
        return self._encoded(own_headers, dict(zip(self.names, self.values, strict=True)))

    def encode_to_headers(self, own_headers: dict[str, object]) -> bytes:
        """Return the bytes of `encode` up to the end of the headers."""
        before = ("content_type", "content_encoding")
        pairs = zip(self.names, self.values, strict=True)
        return self._encoded(own_headers, {k: v for k, v in pairs if k in before}, None)

    def _encoded(
        self,
        own_headers: dict[str, object],
        properties: dict[str, Any],
        delivery_mode: int | None = PERSISTENT,
    ) -> bytes:
        headers: dict[str, object] | None = None
        if self.headers is not None or own_headers:
            headers = {**dict(self.headers or ()), **own_headers}
        if properties.get("delivery_mode") is None:
            properties["delivery_mode"] = delivery_mode
        try:
            return BasicProperties(headers=headers, **properties).encode()
        except ValueError as error:
            raise RowError(f"the row's headers or properties: {error}") from None


NO_PROPERTIES: Final = RowProperties()


def row_properties(batch: pa.RecordBatch, layout: Layout) -> Distinct[RowProperties]:
    """Return the properties of rows.  Raises: RowError for a timestamp before 1970."""
    if not layout.headers and not layout.properties:
        return Distinct([NO_PROPERTIES])
    count = batch.num_rows
    headers: list[Headers] = [None] * count
    if layout.headers:
        headers = _headers(batch.column("headers"))
    names: tuple[str, ...] = ()
    values: list[tuple[Any, ...]] = [()] * count
    if layout.properties:
        names, values = _values(batch.column("properties"))
    seen: dict[tuple[Headers, tuple[Any, ...]], int] = {}
    rows = [seen.setdefault(key, len(seen)) for key in zip(headers, values, strict=True)]
    found = [RowProperties(of_row, names, said) for of_row, said in seen]
    return Distinct(found, None if len(found) == 1 else np.array(rows, np.int64))


def _headers(column: pa.MapArray) -> list[Headers]:
    """Return each row's headers without the sink's own."""
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    keys = column.keys.slice(first, last - first).to_pylist()
    pairs = list(zip(keys, column.items.slice(first, last - first).to_pylist(), strict=True))
    rows: list[Headers] = [
        tuple(pairs[start - first : end - first]) for start, end in itertools.pairwise(offsets)
    ]
    if not RESERVED.isdisjoint(keys):
        rows = [tuple(pair for pair in row or () if pair[0] not in RESERVED) for row in rows]
    if column.null_count:
        missing = column.is_null().to_pylist()
        rows = [None if null else row for null, row in zip(missing, rows, strict=True)]
    return rows


def _values(column: pa.StructArray) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return the names of the properties and each row's values."""
    names = tuple(field.name for field in column.type)
    # `flatten` puts null into every field of a row that is null.
    columns = [
        _property(name, array).to_pylist()
        for name, array in zip(names, column.flatten(), strict=True)
    ]
    return names, list(zip(*columns, strict=True)) if columns else [()] * len(column)


def _property(name: str, array: pa.Array) -> pa.Array:
    """Return the values of a property in AMQP's form: a timestamp in whole seconds."""
    if name != "timestamp":
        return array
    micros = array.cast(pa.int64())
    if array.null_count < len(array) and pc.min(micros).as_py() < 0:
        raise RowError("column 'properties.timestamp': AMQP has no time before 1970")
    return pc.divide(micros, 1_000_000)
