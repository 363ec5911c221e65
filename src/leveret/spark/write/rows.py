"""The rows' destinations and properties, without bodies, each distinct value once.

Most rows repeat each other, so a batch is returned as its distinct addresses and properties and,
for each row, their index.  Objects for each row are made only if a column asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import VariantVal

from leveret.client import BasicProperties
from leveret.client.publish_frames import check_properties, edit_properties, has_empty_headers
from leveret.errors import SyntaxFault
from leveret.spark.errors import SourceError
from leveret.spark.write.schema import Layout

T = TypeVar("T")

#: Exchange and routing key.
Address = tuple[str, str]

#: Pairs of a header's name and value; None without headers.
Headers = tuple[tuple[str, str | None], ...] | None

#: The sink's own headers: any headers of rows with these names are dropped.
PUBLISHER: Final = "x-publisher"
PUBLISHING_ID: Final = "x-publishing-id"
STAGED_EXCHANGE: Final = "x-staged-exchange"
STAGED_ROUTING_KEY: Final = "x-staged-routing-key"
#: With this header, the message keeps a table of headers that is empty without the sink's own.
STAGED_HEADERS: Final = "x-staged-headers"
#: The only header of a publish with many rows.
STAGED_BATCH: Final = "x-staged-batch"
_STAGED: Final = (STAGED_EXCHANGE, STAGED_ROUTING_KEY, STAGED_HEADERS, STAGED_BATCH)
RESERVED: Final = frozenset({PUBLISHER, PUBLISHING_ID, *_STAGED})
_STAGED_BYTES: Final = [name.encode() for name in _STAGED]

#: Returns whether a Kafka topic is an exchange: that of its super stream, or another one.
IsExchange = Callable[[str], bool]

#: The `delivery_mode` of a message without one: it survives a restart of the broker.
PERSISTENT: Final = 2


class RowError(SourceError, ValueError):
    """A row cannot become a message; the text names the column."""


@dataclass(frozen=True, slots=True)
class Distinct(Generic[T]):
    """The distinct values of a batch; `rows` is each row's index, or None if all have the first."""

    values: list[T]
    rows: Any = None  # a numpy array

    def index(self) -> Any:
        """Return each row's index, or 0 for all of them."""
        return 0 if self.rows is None else self.rows


def paired(left: Distinct[Any], right: Distinct[Any]) -> Distinct[tuple[Any, Any]]:
    """Return the distinct pairs of the values of two columns."""
    if left.rows is None and right.rows is None:
        return Distinct([(left.values[0], right.values[0])])
    width = len(right.values)
    found, rows = np.unique(left.index() * width + right.index(), return_inverse=True)
    pairs = [(left.values[code // width], right.values[code % width]) for code in found.tolist()]
    return Distinct(pairs, rows)


# -- addresses -------------------------------------------------------------------------------------


def addresses(
    batch: pa.RecordBatch, layout: Layout, is_exchange: IsExchange | None = None
) -> Distinct[Address]:
    """Return the addresses of rows; topics need `is_exchange`.

    Raises: RowError for a row without an address.
    """
    if layout.by_topic:
        assert is_exchange is not None
        topics: Distinct[str] = Distinct([layout.topic or ""])
        if layout.topic is None:
            topics = _texts(batch, "topic", None)
        keys: Distinct[str] = Distinct([layout.routing_key or ""])
        if layout.routing_key is None:
            keys = _texts(batch, layout.key, "")
        pairs = paired(topics, keys)
        return Distinct([_of_topic(*pair, is_exchange) for pair in pairs.values], pairs.rows)
    exchange: Distinct[str] = Distinct([layout.exchange or ""])
    routing_key: Distinct[str] = Distinct([layout.routing_key or ""])
    if layout.exchange is None:
        exchange = _texts(batch, "exchange", None)
    if layout.by_stream:
        routing_key = _texts(batch, "stream", None)
    elif layout.routing_key is None:
        routing_key = _texts(batch, layout.key, "")
    return paired(exchange, routing_key)


def _of_topic(topic: str, key: str, is_exchange: IsExchange) -> Address:
    """Return the address of a row for a topic.  Raises: RowError for a key that would be lost."""
    if is_exchange(topic):
        return topic, key
    if key:
        raise RowError(
            f"topic {topic!r}: there is no super stream and no exchange of that name, or no "
            "permission for it, and a stream alone keeps no keys. Declare a super stream, or drop "
            "the keys"
        )
    return "", topic


def _texts(batch: pa.RecordBatch, name: str, default: str | None) -> Distinct[str]:
    """Return a column of text, null as `default`.  Raises: RowError for a null without one."""
    column = batch.column(name)
    if column.null_count:
        if default is None:
            raise RowError(f"column {name!r} is null: nothing says where the row goes")
        column = pc.fill_null(column, default)
    if not pa.types.is_string(column.type):
        column = _decoded(column, name)
    encoded = column.dictionary_encode()
    if len(encoded.dictionary) == 1:
        return Distinct(encoded.dictionary.to_pylist())
    return Distinct(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64))


def _decoded(column: pa.Array, name: str) -> pa.Array:
    """Return bytes as text.  Raises: RowError for bytes that are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise RowError(
            f"column {name!r} is not UTF-8: it is the routing key, a text of at most 255 bytes"
        ) from None


# -- properties ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowProperties:
    """The headers of a row and its properties, in the order of `names`.

    `variant` holds typed headers, in place of `headers`: a variant's value and metadata.
    """

    headers: Headers = None
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    variant: tuple[bytes, bytes] | None = None

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
        if self.variant is not None:
            headers = {**_typed_headers(*self.variant), **own_headers}
        elif self.headers is not None or own_headers:
            headers = {**dict(self.headers or ()), **own_headers}
        if properties.get("delivery_mode") is None:
            properties["delivery_mode"] = delivery_mode
        try:
            return BasicProperties(headers=headers, **properties).encode()
        except ValueError as error:
            raise RowError(f"the row's headers or properties: {error}") from None


NO_PROPERTIES: Final = RowProperties()


@dataclass(frozen=True, slots=True)
class RawProperties:
    """The properties of a row as bytes, which are written as they are."""

    raw: bytes

    def encode(self, own_headers: dict[str, object]) -> bytes:
        """Return the bytes with the sink's own headers.

        Raises: RowError for invalid bytes, or if there are too many headers with these.
        """
        try:
            check_properties(self.raw)
            encoded = self._with(own_headers)
            check_properties(encoded)
        except SyntaxFault as error:
            raise RowError(f"column 'raw_properties': {error}") from None
        return encoded

    def _with(self, own_headers: dict[str, object]) -> bytes:
        """Return the checked bytes with the sink's own headers instead of any of the same names."""
        raw = self.raw
        if not own_headers and all(name not in raw for name in _STAGED_BYTES):
            return raw
        if own_headers and has_empty_headers(raw):
            own_headers = own_headers | {STAGED_HEADERS: True}
        return edit_properties(raw, _STAGED_BYTES, own_headers)


def row_properties(
    batch: pa.RecordBatch, layout: Layout
) -> Distinct[RowProperties] | Distinct[RawProperties]:
    """Return the properties of rows.  Raises: RowError for a timestamp before 1970."""
    if layout.raw_properties:
        return _raw_properties(batch.column("raw_properties"))
    if not layout.headers and not layout.properties and not layout.headers_typed:
        return Distinct([NO_PROPERTIES])
    count = batch.num_rows
    headers: list[Headers] = [None] * count
    if layout.headers:
        headers = _headers(batch.column("headers"))
    variants: list[tuple[bytes, bytes] | None] = [None] * count
    if layout.headers_typed:
        column = batch.column("headers_typed")
        pairs = zip(*(part.to_pylist() for part in column.flatten()), strict=True)
        variants = [None if value is None else (value, names) for value, names in pairs]
    names: tuple[str, ...] = ()
    values: list[tuple[Any, ...]] = [()] * count
    if layout.properties:
        names, values = _values(batch.column("properties"))
    seen: dict[tuple[Headers, tuple[Any, ...], tuple[bytes, bytes] | None], int] = {}
    keys = zip(headers, values, variants, strict=True)
    rows = [seen.setdefault(key, len(seen)) for key in keys]
    found = [RowProperties(of_row, names, said, variant) for of_row, said, variant in seen]
    return Distinct(found, None if len(found) == 1 else np.array(rows, np.int64))


def _raw_properties(column: pa.Array) -> Distinct[RawProperties]:
    """Return the property bytes of rows.  Raises: RowError for a row without any."""
    if column.null_count:
        raise RowError("column 'raw_properties' is null: two bytes stand for no properties")
    encoded = column.dictionary_encode()
    found = [RawProperties(raw) for raw in encoded.dictionary.to_pylist()]
    return Distinct(found, encoded.indices.to_numpy().astype(np.int64))


def _typed_headers(value: bytes, metadata: bytes) -> dict[str, object]:
    """Return the headers in a variant without the sink's own.  Raises: RowError."""
    table = VariantVal(value, metadata).toPython()
    if not isinstance(table, dict):
        raise RowError("column 'headers_typed' holds a variant that is no object")
    return {name: header for name, header in table.items() if name not in RESERVED}


def _headers(column: pa.MapArray | pa.ListArray) -> list[Headers]:
    """Return each row's headers without the sink's own: a map, or a list as in Kafka's sink.

    Raises: RowError for a header without a name.
    """
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    entries = column.values.slice(first, last - first)
    keys, values = (part.to_pylist() for part in entries.flatten())
    if None in keys:
        raise RowError("column 'headers': a header has no key")
    # Bytes are written as a string, whose bytes need not be UTF-8.
    texts = [v.decode("utf-8", "surrogateescape") if type(v) is bytes else v for v in values]
    pairs = list(zip(keys, texts, strict=True))
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
