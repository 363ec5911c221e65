"""Values of arguments that JSON has no form for, as definitions files keep them.

A file shows bytes as base 64, times as seconds and decimals as numbers, which whoever reads it may
want to see, and which come back as texts and numbers.  So the entries of arguments that hold one
stand beside, in the field `typed_arguments`, as an AMQP field table in base 64, and count there
when the file is imported.  Other brokers pass over that field.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Final

from leveret.broker.values.arguments import Arguments
from leveret.errors import AmqpError, PreconditionFailed
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import Timestamp, read_table, write_table

#: The field beside `arguments`.
TYPED: Final = "typed_arguments"


def typed_arguments(arguments: Arguments) -> str:
    """Return the entries that JSON would change as `TYPED` holds them; empty for none."""
    typed: Arguments = {name: value for name, value in arguments.items() if _is_changed(value)}
    if not typed:
        return ""
    writer = BytesWriter()
    write_table(writer, typed)
    return base64.b64encode(writer.getvalue()).decode()


def read_typed_arguments(text: str) -> Arguments:
    """Return the entries that `TYPED` holds.  Raises: PreconditionFailed (406)."""
    try:
        data = base64.b64decode(text, validate=True)
        table, end = read_table(data, 0, len(data))
    except (AmqpError, ValueError) as error:
        raise PreconditionFailed(f"{TYPED} is no field table in base 64: {error}") from None
    if end != len(data):
        raise PreconditionFailed(f"{TYPED} has {len(data) - end} bytes behind its table")
    return table


def is_same(one: object, other: object) -> bool:
    """Tell whether two values are the same to who reads them as JSON: 1, 1.0 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        if len(one) != len(other):
            return False
        for name, value in one.items():
            if name not in other or not is_same(value, other[name]):
                return False
        return True
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return False
        for place in range(len(one)):
            if not is_same(one[place], other[place]):
                return False
        return True
    return type(one) is type(other) and one == other


def _is_changed(value: object) -> bool:
    """Tell whether JSON would give back something else."""
    if isinstance(value, dict):
        for inner in value.values():
            if _is_changed(inner):
                return True
        return False
    if isinstance(value, list):
        for inner in value:
            if _is_changed(inner):
                return True
        return False
    return isinstance(value, (bytes, Timestamp, Decimal))
