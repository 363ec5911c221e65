"""The columns of a written table: their meanings, and the refused ones.

An option overrides the column of that name, as in Spark's Kafka sink, so that a table that was read
here can be written elsewhere unchanged; columns that only a read has are ignored.  Any other column
is refused, because a mistyped one would otherwise be silently ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from leveret.spark.columns.schema import PROPERTIES, ROW, SchemaError
from leveret.spark.write.options import WriteOptions

#: The allowed types of a column, and their description.
COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "body": ((BinaryType, StringType), "binary or string"),
    "exchange": ((StringType,), "string"),
    "routing_key": ((StringType,), "string"),
    "stream": ((StringType,), "string"),
    "headers": ((MapType,), "map<string,string>"),
    "properties": ((StructType,), "struct"),
    "publishing_id": ((LongType, IntegerType), "bigint"),
}

#: The columns that only a read has.
PASSED_OVER: Final = tuple(name for name in ROW.fieldNames() if name not in COLUMNS)


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

    @property
    def one_place(self) -> tuple[str, str] | None:
        """The exchange and routing key of all rows, or None if they differ."""
        if self.exchange is None or self.routing_key is None or self.by_stream:
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
    if "body" not in names:
        raise SchemaError(f"there is no column 'body'; there are: {', '.join(names)}")
    exchange, routing_key, by_stream = _destination(names, options)
    numbered = "publishing_id" in names
    _check_numbers(numbered, options)
    return Layout(
        exchange, routing_key, by_stream, "headers" in names, "properties" in names, numbered
    )


def _destination(names: list[str], options: WriteOptions) -> tuple[str | None, str | None, bool]:
    """Return exchange, routing key, and whether the column `stream` gives both."""
    by_name = options.stream or options.queue
    if by_name is not None:
        return "", by_name, False
    if options.exchange is None:
        if "stream" in names and "exchange" in names:
            raise SchemaError(
                "the columns 'stream' and 'exchange' both say where a row goes: drop one of them, "
                "or give one of the options exchange, stream, queue"
            )
        if "stream" in names:
            if options.routing_key is not None:
                raise SchemaError("option 'routingKey': the column 'stream' is the routing key")
            return "", None, True
        if "exchange" not in names:
            raise SchemaError(
                "nothing says where rows go: give one of the options exchange, stream, queue, or "
                "have a column 'exchange' or 'stream'"
            )
    routing_key = options.routing_key
    if routing_key is None and "routing_key" not in names:
        routing_key = ""
    return options.exchange, routing_key, False


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
    if not fits:
        raise SchemaError(f"column {name!r} is {words}, not {kind.simpleString()}")
    if isinstance(kind, StructType):
        _check_properties(kind)


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
