"""Fields of definitions in records, tolerant of damage and of older releases."""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import write_table

#: A longer table is told from others by a digest: it is kept for each binding, many of which may
#: have arguments of 128 KiB.
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
    """Return a field that is a number, 0 where there is none."""
    value = definition.get(field, 0)
    return value if isinstance(value, int) else 0


def table(definition: dict[str, object], field: str) -> dict[str, object]:
    """Return a field that is a table, an empty one where there is none."""
    value = definition.get(field)
    return value if isinstance(value, dict) else {}


def table_identity(value: dict[str, object]) -> bytes:
    """Return what tells a table from others, such as a binding's arguments; they have no order.

    Raises: ValueError: no table can hold one of its values.
    """
    return identity_of(encoded_table(value))


def encoded_table(value: dict[str, object]) -> bytes:
    """Return a table as a record holds it, its entries sorted by name; b"" for an empty one.

    Raises: ValueError: no table can hold one of its values.
    """
    if not value:
        return b""
    writer = BytesWriter()
    write_table(writer, {name: value[name] for name in sorted(value)})
    return writer.getvalue()


def identity_of(encoded: bytes) -> bytes:
    """Return what tells a table from others that `encoded_table` encoded."""
    if len(encoded) <= _IDENTITY_BYTES_MAX:
        return encoded
    # No encoded table begins so: the first byte of its length is 0.
    return b"#" + hashlib.sha256(encoded).digest()
