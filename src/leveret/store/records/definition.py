"""The layout of a definition in a record: its kind and its fields.

    string kind | table of the fields that are not tables | n times (string name | table)

Fields that are themselves tables (a queue's arguments, a policy's definition) are written
separately, as the client sent them, because nested in another table they could exceed its limits on
depth and entries.

A new definition is created as a `Definition`, which encodes it, and refuses it if the journal, a
snapshot or a definitions file could not store all its values.  So code that changes the broker
creates it before it changes any state.  Definitions that are already on disk are rewritten only
with `write_definition`, because an earlier release may have accepted values that a new definition
must not have.
"""

from __future__ import annotations

import math
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import AmqpError, PreconditionFailed
from leveret.limits import (
    DEFINITION_BYTES_MAX,
    SHORT_STRING_BYTES_MAX,
    TABLE_DEPTH_MAX,
    TABLE_ENTRIES_MAX,
)
from leveret.store.records.record import Damaged, write_string
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import read_table, write_table

#: The maximum length of a value quoted in an error.
_QUOTED_MAX: Final = 64


#: The possible values of a field, for error messages.
_HELD: Final = (
    "use texts, numbers of 64 bits, true, false, null, lists and objects, with names of at most "
    f"{SHORT_STRING_BYTES_MAX} bytes, {TABLE_ENTRIES_MAX} entries in all and {TABLE_DEPTH_MAX} "
    "levels of nesting"
)


@final
class Definition:
    """A valid, encoded definition; `payload` is the payload of its record."""

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        """Encode the definition.

        Raises: PreconditionFailed (406) if the journal, a snapshot or a definitions file cannot
        store a field; the text names the field, the cause and the remedy.
        """
        for name, value in fields.items():
            _check_value(kind, name, value, 0)
        writer = BytesWriter()
        try:
            write_definition(writer, kind, fields)
        except ValueError as error:
            raise _unkept(kind, _culprit(fields), f"{error}; {_HELD}") from None
        if len(writer) > DEFINITION_BYTES_MAX:
            raise _unkept(
                kind,
                _largest(fields),
                f"the whole definition has {len(writer)} bytes; keep it to {DEFINITION_BYTES_MAX}",
            )
        self.payload: Final[bytes] = writer.getvalue()


def _check_value(kind: str, name: str, value: object, depth: i64) -> None:
    """Refuse a value that a table would not return unchanged, or that JSON cannot represent.

    Tables and arrays are checked down to `TABLE_DEPTH_MAX`.  Encoding refuses deeper ones.
    """
    if isinstance(value, str):
        if not _is_text(value):
            raise _unkept(kind, name, "it is a text that is not Unicode; write it as UTF-8")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _unkept(kind, name, f"{value} is not finite; use a finite number")
    elif isinstance(value, dict):
        if depth <= TABLE_DEPTH_MAX:
            for key, inner in value.items():
                place = f"{name}.{_quoted(key)}"
                if not isinstance(key, str) or not _is_text(key):
                    raise _unkept(kind, place, "its name is not Unicode; write it as UTF-8")
                _check_value(kind, place, inner, depth + 1)
    elif isinstance(value, list) and depth <= TABLE_DEPTH_MAX:
        for inner in value:
            _check_value(kind, name, inner, depth + 1)


def _is_text(text: str) -> bool:
    """Return whether `text` is Unicode without lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _culprit(fields: dict[str, object]) -> str:
    """Return the first field that cannot be encoded alone, or the largest field."""
    for name, value in fields.items():
        if not _is_written(value):
            return name + _inside(value)
    return _largest(fields)


def _inside(value: object) -> str:
    """Return the path to an entry of a table that cannot be encoded, or "" if there is none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _is_written({key: inner}):
                return f".{_quoted(key)}" + ("" if _is_written(inner) else _inside(inner))
    return ""


def _is_written(value: object) -> bool:
    """Return whether `value` can be encoded: as a table if it is a dict, otherwise in a table."""
    table: dict[str, object] = {}
    if isinstance(value, dict):
        table = value
    else:
        table[""] = value
    try:
        write_table(BytesWriter(), table)
    except ValueError:
        return False
    return True


def _largest(fields: dict[str, object]) -> str:
    """Return the name of the largest field."""
    found = ""
    most = -1
    for name, value in fields.items():
        size = len(value) if isinstance(value, (str, bytes, list, dict)) else 0
        if size > most:
            found, most = name, size
    return found


def _quoted(value: object) -> str:
    """Return a name as quoted in an error."""
    text = value if isinstance(value, str) else str(value)
    shown = text if _is_text(text) else ascii(text)[1:-1]
    return shown if len(shown) <= _QUOTED_MAX else shown[:_QUOTED_MAX] + "..."


def _unkept(kind: str, name: str, why: str) -> PreconditionFailed:
    """Return the error for a field that cannot be stored."""
    return PreconditionFailed(f"the {kind.replace('_', ' ')} cannot be kept: field '{name}': {why}")


def write_definition(writer: BytesWriter, kind: str, definition: dict[str, object]) -> None:
    """Append a definition.

    Raises: ValueError if a field has a type that tables cannot contain, or a table exceeds its
    limits; `writer` may then contain part of the definition.
    """
    write_string(writer, kind.encode())
    write_table(writer, {k: v for k, v in definition.items() if not isinstance(v, dict)})
    for name, value in definition.items():
        if isinstance(value, dict):
            write_string(writer, name.encode())
            write_table(writer, value)


def read_definition(data: bytes, position: i64, end: i64) -> tuple[str, dict[str, object]]:
    """Return the kind and the fields of the definition from `position` to `end`.

    Raises: Damaged if the bytes are not a definition.
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
    """Return the string at `position` and its end."""
    if position >= end:
        raise Damaged("a string begins after the end of its record")
    after: i64 = position + 1 + data[position]
    if after > end:
        raise Damaged("a string exceeds its record")
    return data[position + 1 : after].decode(), after
