"""Readers of the fields of definitions, which tolerate damage and records of older releases."""

from __future__ import annotations

import hashlib
from typing import Final

from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import write_table

#: Longer tables are identified by a digest, because the identity is stored for each binding, and
#: many bindings may have arguments of 128 KiB.
_IDENTITY_BYTES_MAX: Final = 64


def text(definition: dict[str, object], field: str) -> str:
    """Return a field as text, or "" if it is missing."""
    value = definition.get(field, "")
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else str(value)


def raw(definition: dict[str, object], field: str) -> bytes:
    """Return a field as bytes, or b"" if it is missing."""
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
    """Return the identity of a table, such as a binding's arguments, regardless of entry order.

    Raises: ValueError if a value has a type that tables cannot contain.
    """
    return identity_of(encoded_table(value))


def encoded_table(value: dict[str, object]) -> bytes:
    """Encode a table as in a record, with its entries sorted by name, or as b"" if it is empty.

    Raises: ValueError if a value has a type that tables cannot contain.
    """
    if not value:
        return b""
    writer = BytesWriter()
    write_table(writer, {name: value[name] for name in sorted(value)})
    return writer.getvalue()


def identity_of(encoded: bytes) -> bytes:
    """Return the identity of a table from the result of `encoded_table`."""
    if len(encoded) <= _IDENTITY_BYTES_MAX:
        return encoded
    # Encoded tables never begin with "#": the first byte of their length is 0.
    return b"#" + hashlib.sha256(encoded).digest()
