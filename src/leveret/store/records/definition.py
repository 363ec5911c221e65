"""How a definition lies in a record: what kind it is and its fields.

    string kind | table of the fields that are no tables | n times (string name | table)

Fields that are tables themselves (a queue's arguments, a policy's definition) come apart, each as
the client sent it: inside one more table they could exceed its limits on depth and entries.

`Definition` is how a new one is made.  It is encoded when it is made, and refused if the journal, a
snapshot or a definitions file could not keep every value of it, so whoever changes the broker makes
it before any state changes.  What the disk holds already is written by `write_definition` alone: an
earlier release may have taken values that a new definition must not have.
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

#: How much of a value an error quotes.
_QUOTED_MAX: Final = 64


#: What a field can hold, for whoever has to change one.
_HELD: Final = (
    "use texts, numbers of 64 bits, true, false, null, lists and objects, with names of at most "
    f"{SHORT_STRING_BYTES_MAX} bytes, {TABLE_ENTRIES_MAX} entries in all and {TABLE_DEPTH_MAX} "
    "levels of nesting"
)


@final
class Definition:
    """A definition that can be kept, encoded: `payload` is what its record holds."""

    def __init__(self, kind: str, fields: dict[str, object]) -> None:
        """Encode it.

        Raises: PreconditionFailed (406): the journal, a snapshot or a definitions file cannot keep
        a field; the text names the field, the cause and the remedy.
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
    """Refuse what a table could be given and would not give back, or JSON has no form for.

    Tables and arrays are looked at down to `TABLE_DEPTH_MAX`; deeper ones the table itself refuses.
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
    """Tell whether `text` is Unicode: no half of a character, and no byte that was not UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _culprit(fields: dict[str, object]) -> str:
    """Return the first field that cannot be written by itself, or the one with the most entries."""
    for name, value in fields.items():
        if not _is_written(value):
            return name + _inside(value)
    return _largest(fields)


def _inside(value: object) -> str:
    """Return the path to what cannot be written inside a table; empty where it is all of it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _is_written({key: inner}):
                return f".{_quoted(key)}" + ("" if _is_written(inner) else _inside(inner))
    return ""


def _is_written(value: object) -> bool:
    """Tell whether a table can hold `value`, or is it, where it is a table."""
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
    """Return the field that takes the most room."""
    found = ""
    most = -1
    for name, value in fields.items():
        size = len(value) if isinstance(value, (str, bytes, list, dict)) else 0
        if size > most:
            found, most = name, size
    return found


def _quoted(value: object) -> str:
    """Return a name as an error quotes it."""
    text = value if isinstance(value, str) else str(value)
    shown = text if _is_text(text) else ascii(text)[1:-1]
    return shown if len(shown) <= _QUOTED_MAX else shown[:_QUOTED_MAX] + "..."


def _unkept(kind: str, name: str, why: str) -> PreconditionFailed:
    """Return the error of a field that cannot be kept."""
    return PreconditionFailed(f"the {kind.replace('_', ' ')} cannot be kept: field '{name}': {why}")


def write_definition(writer: BytesWriter, kind: str, definition: dict[str, object]) -> None:
    """Append a definition.

    Raises: ValueError: a field is of no type that a table can hold, or a table exceeds its limits;
    then `writer` may hold a part of it.
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
