"""How a definition lies in a record: what kind it is and its fields.

    string kind | table of the fields that are no tables | n times (string name | table)

Fields that are tables themselves (a queue's arguments, a policy's definition) come apart, each as
the client sent it: inside one more table they could exceed its limits on depth and entries.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.errors import AmqpError
from leveret.store.record import Damaged, write_string
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import read_table, write_table


def write_definition(writer: BytesWriter, kind: str, definition: dict[str, object]) -> None:
    """Append a definition.

    Raises: SyntaxFault: a field is of no type that a table can hold, or a table exceeds its limits.
    """
    write_string(writer, kind.encode())
    write_table(writer, {k: v for k, v in definition.items() if not isinstance(v, dict)})
    for name, value in definition.items():
        if isinstance(value, dict):
            write_string(writer, name.encode())
            write_table(writer, value)


def read_definition(data: bytes, position: i64, end: i64) -> tuple[str, dict[str, object]]:
    """Return the kind and the fields of the definition that lies from `position` to `end`.

    Raises: Damaged: it does not hold a definition.
    """
    try:
        kind, position = _read_string(data, position, end)
        definition, position = read_table(data, position, end)
        while position < end:
            name, position = _read_string(data, position, end)
            definition[name], position = read_table(data, position, end)
    except (AmqpError, UnicodeDecodeError) as error:
        raise Damaged(f"a definition cannot be read: {error}") from error
    return kind, definition


def _read_string(data: bytes, position: i64, end: i64) -> tuple[str, i64]:
    """Return the string at `position` and where it ends."""
    if position >= end:
        raise Damaged("a string begins behind the end of its record")
    after: i64 = position + 1 + data[position]
    if after > end:
        raise Damaged("a string exceeds its record")
    return data[position + 1 : after].decode(), after
