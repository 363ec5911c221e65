"""Arguments with values that JSON cannot represent, as stored in definitions files.

A readable file contains bytes as base 64, times as seconds and decimals as numbers, which an import
would read as strings and numbers.  Therefore these entries are written a second time, in the field
`typed_arguments`, as an AMQP field table in base 64.  An import reads them from there.  Other
brokers ignore that field.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Final

from leveret.broker.attributes.arguments import Arguments
from leveret.errors import AmqpError, PreconditionFailed
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import Timestamp, read_table, write_table

#: The additional field of an entry with `arguments`.
TYPED: Final = "typed_arguments"


def typed_arguments(arguments: Arguments) -> str:
    """Return the entries that JSON would change, in the format of `TYPED`, or ""."""
    typed: Arguments = {name: value for name, value in arguments.items() if _is_changed(value)}
    if not typed:
        return ""
    writer = BytesWriter()
    write_table(writer, typed)
    return base64.b64encode(writer.getvalue()).decode()


def read_typed_arguments(text: str) -> Arguments:
    """Return the entries in `TYPED`.  Raises: PreconditionFailed (406)."""
    try:
        data = base64.b64decode(text, validate=True)
        table, end = read_table(data, 0, len(data))
    except (AmqpError, ValueError) as error:
        raise PreconditionFailed(f"{TYPED} is not a field table in base 64: {error}") from None
    if end != len(data):
        raise PreconditionFailed(f"{TYPED} has {len(data) - end} bytes after its table")
    return table


def is_same(one: object, other: object) -> bool:
    """Return whether two values are equal in JSON, where 1, 1.0 and true are different values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            name in other and is_same(value, other[name]) for name, value in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            is_same(value, other[place]) for place, value in enumerate(one)
        )
    return type(one) is type(other) and one == other


def _is_changed(value: object) -> bool:
    """Return whether a value would be changed by writing it as JSON and reading it back."""
    if isinstance(value, dict):
        return any(_is_changed(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_is_changed(inner) for inner in value)
    return isinstance(value, (bytes, Timestamp, Decimal))
