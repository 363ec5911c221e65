"""The columns of a written table: their meanings, and the refused ones.

Some columns also have the name that they have in Spark's Kafka sink.  As there, an option overrides
the column of its name, so that a table that was read here can be written elsewhere unchanged;
columns that exist only in reads are ignored.  Any other column is refused, because a mistyped one
would otherwise be silently ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from leveret.spark.columns.schema import PROPERTIES, RAW_PROPERTIES, ROW, SchemaError
from leveret.spark.write.options import WriteOptions

#: The allowed types of a column, and their description.
COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "body": ((BinaryType, StringType), "binary or string"),
    "exchange": ((StringType,), "string"),
    "routing_key": ((StringType,), "string"),
    "stream": ((StringType,), "string"),
    "headers": (
        (MapType, ArrayType),
        "map<string,string> or array<struct<key: string, value: binary>>",
    ),
    "properties": ((StructType,), "struct"),
    "publishing_id": ((LongType, IntegerType), "bigint"),
    "headers_typed": ((VariantType,), "variant"),
    RAW_PROPERTIES: ((BinaryType,), "binary"),
    "value": ((BinaryType, StringType), "binary or string"),
    "key": ((BinaryType, StringType), "binary or string"),
    "topic": ((StringType,), "string"),
}

#: The columns that exist only in reads.
PASSED_OVER: Final = tuple(
    name for name in (*ROW.fieldNames(), "timestampType") if name not in COLUMNS
)

#: The columns of Spark's Kafka sink that are other names for columns of this sink.
_ALIASES: Final = {"value": "body", "key": "routing_key"}

#: Columns that each say where a row goes.
_WHERE: Final = ("stream", "exchange", "topic")


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns are used; those that are False or constant are not read from the rows."""

    #: Constants, or None if a column gives the value.
    exchange: str | None
    routing_key: str | None
    #: Whether the column `stream` is the routing key, with the default exchange.
    by_stream: bool
    headers: bool
    properties: bool
    publishing_id: bool = False
    #: Whether rows go to Kafka's topics: the constant, or that of the column if it is None.
    by_topic: bool = False
    topic: str | None = None
    #: Whether a column holds typed headers, or all properties as bytes.
    headers_typed: bool = False
    raw_properties: bool = False
    #: The names of the columns with the body and the routing key.
    body: str = "body"
    key: str = "routing_key"

    @property
    def one_place(self) -> tuple[str, str] | None:
        """The exchange and routing key of all rows, or None if they differ."""
        if self.exchange is None or self.routing_key is None or self.by_stream or self.by_topic:
            return None
        return self.exchange, self.routing_key


def layout_of(schema: StructType, options: WriteOptions) -> Layout:
    """Return how rows of a schema become messages.  Raises: SchemaError."""
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"column {twice[0]!r} is there twice")
    for field in schema.fields:
        _check_column(field.name, field.dataType)
    for alias, name in _ALIASES.items():
        if alias in names and name in names:
            raise SchemaError(f"the columns {name!r} and {alias!r} mean the same: drop one of them")
    if "body" not in names and "value" not in names:
        raise SchemaError(f"there is no column 'body' or 'value'; there are: {', '.join(names)}")
    _check_copy(names, options)
    numbered = "publishing_id" in names
    _check_numbers(numbered, options)
    key = "key" if "key" in names else "routing_key"
    exchange, routing_key, by = _destination(names, key, options)
    return Layout(
        exchange,
        routing_key,
        by == "stream",
        "headers" in names and "headers_typed" not in names and not options.copy,
        "properties" in names and not options.copy,
        numbered,
        by == "topic",
        options.topic,
        "headers_typed" in names and not options.copy,
        options.copy,
        "value" if "value" in names else "body",
        key,
    )


def _destination(
    names: list[str], key: str, options: WriteOptions
) -> tuple[str | None, str | None, str]:
    """Return exchange, routing key, and the column that gives both, if one does."""
    by_name = options.stream or options.queue
    if by_name is not None:
        return "", by_name, ""
    routing_key = options.routing_key
    if routing_key is None and key not in names:
        routing_key = ""
    if options.topic is not None:
        return "", routing_key, "topic"
    if options.exchange is not None:
        return options.exchange, routing_key, ""
    found = [name for name in _WHERE if name in names]
    if len(found) > 1:
        raise SchemaError(
            f"the columns {found[0]!r} and {found[1]!r} both say where a row goes: drop one of "
            "them, or give one of the options exchange, stream, queue, topic"
        )
    if not found:
        raise SchemaError(
            "nothing says where rows go: give one of the options exchange, stream, queue, topic, "
            "or have a column 'exchange', 'stream' or 'topic'"
        )
    if found == ["exchange"]:
        return None, routing_key, ""
    if found == ["topic"]:
        return "", routing_key, "topic"
    if options.routing_key is not None:
        raise SchemaError("option 'routingKey': the column 'stream' is the routing key")
    return "", None, "stream"


def _check_copy(names: list[str], options: WriteOptions) -> None:
    """Check that property bytes and the option that writes them are given together."""
    if options.copy and RAW_PROPERTIES not in names:
        raise SchemaError(
            f"option 'copy': there is no column {RAW_PROPERTIES!r}; read the rows with the option "
            "copy, too"
        )
    if RAW_PROPERTIES in names and not options.copy:
        raise SchemaError(
            f"column {RAW_PROPERTIES!r}: set the option copy to true to write these bytes as they "
            "are, or drop the column"
        )
    if options.copy and "publishing_id" in names:
        raise SchemaError("option 'copy': the column 'publishing_id' would change the properties")


def _check_numbers(numbered: bool, options: WriteOptions) -> None:
    """Check that publishing ids and the name of their publisher are given together."""
    if numbered and options.publisher_name is None:
        raise SchemaError("the column 'publishing_id' needs the option publisherName")
    if numbered and options.dedup != "auto":
        raise SchemaError(
            f"the column 'publishing_id' is a dedup of its own: drop it, or dedup={options.dedup}"
        )
    if numbered and options.write_id is not None:
        raise SchemaError("the column 'publishing_id' recognises rows again: drop it, or writeId")
    if options.publisher_name is not None and not numbered:
        raise SchemaError("option 'publisherName' says nothing without a column 'publishing_id'")


def _check_column(name: str, kind: DataType) -> None:
    """Check one column's name and type."""
    if name in PASSED_OVER:
        return
    if name not in COLUMNS:
        raise SchemaError(f"there is no column {name!r}; there are: {', '.join(COLUMNS)}")
    types, words = COLUMNS[name]
    fits = isinstance(kind, types)
    if isinstance(kind, MapType):
        fits = fits and all(isinstance(t, StringType) for t in (kind.keyType, kind.valueType))
    if isinstance(kind, ArrayType):
        fits = _is_kafka_headers(kind.elementType)
    if not fits:
        raise SchemaError(f"column {name!r} is {words}, not {kind.simpleString()}")
    if isinstance(kind, StructType):
        _check_properties(kind)


def _is_kafka_headers(entry: DataType) -> bool:
    """Return whether a type is that of one of Kafka's headers."""
    if not isinstance(entry, StructType) or entry.fieldNames() != ["key", "value"]:
        return False
    return isinstance(entry["key"].dataType, StringType) and isinstance(
        entry["value"].dataType, BinaryType | StringType
    )


def _check_properties(asked: StructType) -> None:
    """Check the fields of `properties`: any of them, in any order."""
    known = {field.name: field.dataType for field in PROPERTIES.fields}
    seen: set[str] = set()
    for field in asked.fields:
        name = f"properties.{field.name}"
        if field.name not in known:
            raise SchemaError(f"there is no column {name!r}; there are: {', '.join(known)}")
        if field.name in seen:
            raise SchemaError(f"column {name!r} is there twice")
        seen.add(field.name)
        if not isinstance(field.dataType, type(known[field.name])):
            kind = known[field.name].simpleString()
            raise SchemaError(f"column {name!r} is {kind}, not {field.dataType.simpleString()}")
