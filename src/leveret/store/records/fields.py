"""Fields of definitions in records, tolerant of damage and of older releases."""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import write_table

#: A longer table is identified by a digest: the identity is stored for each binding, and many
#: bindings may have arguments of 128 KiB.
_IDENTITY_BYTES_MAX: Final = 64


def text(definition: dict[str, object], field: str) -> str:
    """Return a field as text, empty if it is absent."""
    value = definition.get(field, "")
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else str(value)


def raw(definition: dict[str, object], field: str) -> bytes:
    """Return a field as bytes, empty if it is absent."""
    value = definition.get(field)
    return value if isinstance(value, bytes) else text(definition, field).encode()


def number(definition: dict[str, object], field: str) -> int:
    """Return a number field, or 0 if it is missing."""
    value = definition.get(field, 0)
    return value if isinstance(value, int) else 0


def table(definition: dict[str, object], field: str) -> dict[str, object]:
    """Return a table field, or an empty table if it is missing."""
    value = definition.get(field)
    return value if isinstance(value, dict) else {}


def table_identity(value: dict[str, object]) -> bytes:
    """Return the identity of a table, such as a binding's arguments, whatever the order of entries.

    Raises: ValueError: no table can hold one of its values.
    """
    return identity_of(encoded_table(value))


def encoded_table(value: dict[str, object]) -> bytes:
    """Return a table encoded as in a record, its entries sorted by name; b"" for an empty one.

    Raises: ValueError: no table can hold one of its values.
    """
    if not value:
        return b""
    writer = BytesWriter()
    write_table(writer, {name: value[name] for name in sorted(value)})
    return writer.getvalue()


def identity_of(encoded: bytes) -> bytes:
    """Return the identity of a table that `encoded_table` encoded."""
    if len(encoded) <= _IDENTITY_BYTES_MAX:
        return encoded
    # No encoded table begins so: the first byte of its length is 0.
    return b"#" + hashlib.sha256(encoded).digest()
