"""Reading, writing and checking of field tables, AMQP's nested maps and arrays.

Types on the wire and in Python (RabbitMQ's letters and signedness):

    t bool                     b B s u I i l L  int: 8 signed, 8 unsigned, 16 signed, 16 unsigned,
    f d float (4, 8 bytes)       32 signed, 32 unsigned, 64 signed, 64 signed (as RabbitMQ reads L)
    D Decimal (unsigned)       S str, or bytes if they are not UTF-8
    x bytes                    T Timestamp (unsigned seconds)
    A list                     F dict                     V None

The written types are t, I or l (by range), d, D, S, x, T, A, F and V; RabbitMQ reads all of them.
A datetime with a time zone is written as T.

Invariants: malformed input raises `SyntaxFault` and nothing else; no value is built before the
whole table is checked; nesting is limited by `TABLE_DEPTH_MAX`, and the number of all entries,
including nested ones, by `TABLE_ENTRIES_MAX`; `skim_table` and `read_table` accept exactly the same
input.  A repeated key keeps its first value.

Source: AMQP 0-9-1 section 4.2.5.5 and RabbitMQ's errata (section "field types").
"""

from __future__ import annotations

from datetime import datetime
from decimal import Context, Decimal
from typing import Any, Final, final

from mypy_extensions import i32, i64, u8

from leveret.errors import SyntaxFault
from leveret.limits import TABLE_DEPTH_MAX, TABLE_ENTRIES_MAX
from leveret.wire.buffer import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_f64_be,
    write_i32_be,
    write_i64_be,
)
from leveret.wire.primitives import seconds_of, write_longstr, write_shortstr, write_timestamp

#: Width codes: below 16, the size of a fixed-size value in bytes; otherwise one of these.
_LONG: Final = 16
_TABLE: Final = 17
_ARRAY: Final = 18
_UNKNOWN: Final = 255

_FIXED: Final = {
    "t": 1,
    "b": 1,
    "B": 1,
    "s": 2,
    "u": 2,
    "I": 4,
    "i": 4,
    "f": 4,
    "D": 5,
    "l": 8,
    "L": 8,
    "d": 8,
    "T": 8,
    "V": 0,
    "S": _LONG,
    "x": _LONG,
    "F": _TABLE,
    "A": _ARRAY,
}
#: The context that scales decimals, precise enough for all 32-bit numbers.
_DECIMALS: Final = Context(prec=10)

#: The letters of integers: I i s u b B l L.
_INTEGERS: Final = (0x49, 0x69, 0x73, 0x75, 0x62, 0x42, 0x6C, 0x4C)

_WIDTHS: Final[bytes] = bytes([_FIXED.get(chr(kind), _UNKNOWN) for kind in range(256)])


@final
class Timestamp:
    """A time in seconds since the Unix epoch, 0 to 2^64 - 1; equal only to another Timestamp."""

    def __init__(self, seconds: int) -> None:
        #: The seconds since the Unix epoch.
        self.seconds: Final = seconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.seconds == other.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"Timestamp({self.seconds})"


# -- skimming --------------------------------------------------------------------------------------


def skim_table(data: bytes, start: i64, end: i64, entries_max: i64 = TABLE_ENTRIES_MAX) -> i64:
    """Check the table at `start` without building it; return the position after it.

    Read nothing beyond `end`, and at most `entries_max` entries in total.

    Raises: SyntaxFault (502).
    """
    position = start + 4
    if position > end:
        raise _short()
    size: i64 = i64(read_i32_be(data, start))
    if size < 0 or size > end - position:
        raise _short()
    if size > 0:
        _skim_entries(data, position, position + size, 1, entries_max, True)
    return position + size


def _skim_entries(data: bytes, position: i64, end: i64, depth: i64, left: i64, keyed: bool) -> i64:
    """Check the entries of a table (`keyed`) or an array up to `end`; return the allowance left."""
    while position < end:
        left -= 1
        if left < 0:
            raise _crowded()
        if keyed:
            position += 1 + i64(data[position])
            if position >= end:
                raise _short()
        width: i64 = i64(_WIDTHS[i64(data[position])])
        position += 1
        if width < _LONG:
            position += width
        elif width == _UNKNOWN:
            raise _unknown(i64(data[position - 1]))
        else:
            if end - position < 4:
                raise _short()
            size: i64 = i64(read_i32_be(data, position))
            position += 4
            if size < 0 or size > end - position:
                raise _short()
            if width != _LONG:
                if depth >= TABLE_DEPTH_MAX:
                    raise _deep()
                left = _skim_entries(
                    data, position, position + size, depth + 1, left, width == _TABLE
                )
            position += size
    if position != end:
        raise _short()
    return left


def value_end(data: bytes, at: i64) -> i64:
    """Return the end of the value whose type letter is at `at`, in a checked table."""
    width: i64 = i64(_WIDTHS[i64(data[at])])
    if width < _LONG:
        return at + 1 + width
    return at + 5 + i64(read_i32_be(data, at + 1))


def _short() -> SyntaxFault:
    """Return the error for a table that ends inside a value."""
    return SyntaxFault("a field table ends within a value")


def _crowded() -> SyntaxFault:
    """Return the error for a table with too many entries."""
    return SyntaxFault(f"a field table has more than {TABLE_ENTRIES_MAX} entries")


def _deep() -> SyntaxFault:
    """Return the error for tables nested too deep."""
    return SyntaxFault(f"field tables nest deeper than {TABLE_DEPTH_MAX}")


def _unknown(kind: i64) -> SyntaxFault:
    """Return the error for an unknown type."""
    return SyntaxFault(f"a field table has a value of the unknown type {kind}")


# -- reading ---------------------------------------------------------------------------------------


def read_table(
    data: bytes, start: i64, end: i64, entries_max: i64 = TABLE_ENTRIES_MAX
) -> tuple[dict[str, object], i64]:
    """Return the table at `start` and the position after it; read nothing beyond `end`.

    Raises: SyntaxFault (502).
    """
    after = skim_table(data, start, end, entries_max)
    return _TableReader(data, start + 4).table(after), after


def read_entries(data: bytes, start: i64, end: i64) -> dict[str, object]:
    """Return the table whose entries, without a leading length, are `data[start:end]`.

    The response of AMQPLAIN is such a table.

    Raises: SyntaxFault (502).
    """
    _skim_entries(data, start, end, 1, TABLE_ENTRIES_MAX, True)
    return _TableReader(data, start).table(end)


@final
class _TableReader:
    """Builds the values of a checked table."""

    def __init__(self, data: bytes, position: i64) -> None:
        self.data: Final = data
        self.position: i64 = position

    def table(self, end: i64) -> dict[str, object]:
        """Return the entries up to `end`; a repeated key keeps its first value, as in RabbitMQ."""
        found: dict[str, object] = {}
        while self.position < end:
            start: i64 = self.position + 1
            self.position = start + i64(self.data[self.position])
            key = self.data[start : self.position].decode("utf-8", "surrogateescape")
            found.setdefault(key, self.value())
        return found

    def array(self, end: i64) -> list[object]:
        """Return the values up to `end`."""
        found: list[object] = []
        while self.position < end:
            found.append(self.value())
        return found

    def value(self) -> object:
        """Return the value at `position` and advance past it."""
        kind = i64(self.data[self.position])
        at = self.position + 1
        width = i64(_WIDTHS[kind])
        if width < _LONG:
            self.position = at + width
            return self.fixed(kind, at)
        start = at + 4
        end = start + i64(read_i32_be(self.data, at))
        self.position = start
        if width == _TABLE:
            return self.table(end)
        if width == _ARRAY:
            return self.array(end)
        self.position = end
        raw = self.data[start:end]
        return raw if kind == 0x78 else _text(raw)  # x

    def fixed(self, kind: i64, at: i64) -> object:
        """Return the fixed-size value of type `kind` at `at`."""
        data = self.data
        if kind == 0x56:  # V
            return None
        if kind == 0x74:  # t
            return data[at] != 0
        if kind == 0x64:  # d
            return read_f64_be(data, at)
        if kind == 0x66:  # f
            return read_f32_be(data, at)
        if kind == 0x44:  # D
            return _decimal(data, at)
        if kind == 0x54:  # T
            return Timestamp(read_u64(data, at))
        return _integer(data, kind, at)


def _integer(data: bytes, kind: i64, at: i64) -> int:
    """Return the integer of type `kind` at `at`."""
    number: i64 = 0
    if kind == 0x49:  # I
        number = i64(read_i32_be(data, at))
    elif kind == 0x69:  # i
        number = i64(read_i32_be(data, at)) & 0xFFFF_FFFF
    elif kind == 0x73:  # s
        number = i64(read_i16_be(data, at))
    elif kind == 0x75:  # u
        number = i64(read_i16_be(data, at)) & 0xFFFF
    elif kind == 0x62:  # b
        number = (i64(data[at]) ^ 0x80) - 0x80
    elif kind == 0x42:  # B
        number = i64(data[at])
    else:  # l and L
        number = read_i64_be(data, at)
    return number


def read_number(data: bytes, at: i64) -> i64:
    """Return the integer whose type letter is at `at`, or -1 for other types and negative values.

    The table must have been checked.
    """
    kind = i64(data[at])
    if kind not in _INTEGERS:
        return -1
    number: i64 = _integer(data, kind, at + 1)
    return max(number, -1)


def read_u64(data: bytes, at: i64) -> int:
    """Return the unsigned 64-bit integer at `at`; the bytes must exist."""
    number = read_i64_be(data, at)
    if number >= 0:
        return number
    return int(number) + 0x1_0000_0000_0000_0000


def _text(raw: bytes) -> object:
    """Return `raw` as text if it is UTF-8, else unchanged."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _decimal(data: bytes, at: i64) -> Decimal:
    """Return the exact decimal at `at`, regardless of the current decimal context."""
    number = int(i64(read_i32_be(data, at + 1)) & 0xFFFF_FFFF)
    return _DECIMALS.scaleb(Decimal(number), -int(data[at]))


# -- writing ---------------------------------------------------------------------------------------


def write_table(w: BytesWriter, table: dict[str, object]) -> None:
    """Write `table`, preceded by its length.

    Raises: ValueError for a key or value that a table cannot contain, or beyond the limits; `w`
    may then contain a part of the table.
    """
    if not table:
        write_i32_be(w, 0)
        return
    _TableWriter(w).sized_table(table, 1)


def write_entries(w: BytesWriter, table: dict[str, object]) -> None:
    """Write the entries of `table` without a length, as in the response of AMQPLAIN.

    Raises: ValueError as `write_table`.
    """
    _TableWriter(w).entries(table, 1)


@final
class _TableWriter:
    """Writes nested values and counts them."""

    def __init__(self, w: BytesWriter) -> None:
        self.w: Final = w
        self.left: i64 = TABLE_ENTRIES_MAX

    def sized_table(self, table: dict[Any, object], depth: i64) -> None:
        """Write `table`, preceded by its length."""
        start: i64 = len(self.w)
        write_i32_be(self.w, 0)
        self.entries(table, depth)
        self.close(start)

    def entries(self, table: dict[Any, object], depth: i64) -> None:
        """Write the entries of a table at nesting depth `depth`."""
        self.check(depth)
        for key, value in table.items():
            self.count()
            if not isinstance(key, str):
                raise _refused(f"key of type {type(key).__name__}")
            write_shortstr(self.w, key)
            try:
                self.value(value, depth)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None

    def array(self, values: list[object], depth: i64) -> None:
        """Write `values`, preceded by their length."""
        self.check(depth)
        start: i64 = len(self.w)
        write_i32_be(self.w, 0)
        for value in values:
            self.count()
            self.value(value, depth)
        self.close(start)

    def check(self, depth: i64) -> None:
        """Check the nesting depth.  Raises: ValueError."""
        if depth > TABLE_DEPTH_MAX:
            raise ValueError(f"field tables nest at most {TABLE_DEPTH_MAX} deep")

    def count(self) -> None:
        """Count an entry.  Raises: ValueError if there are too many."""
        self.left -= 1
        if self.left < 0:
            raise ValueError(f"a field table holds at most {TABLE_ENTRIES_MAX} entries")

    def close(self, start: i64) -> None:
        """Fill in the length at `start`."""
        size: i64 = i64(len(self.w)) - start - 4
        if size > 0x7FFF_FFFF:
            raise ValueError(f"a field table of {size} bytes is refused")
        patch_length(self.w, start, size)

    def value(self, value: object, depth: i64) -> None:
        """Write the type letter and the value."""
        w = self.w
        if isinstance(value, str):
            w.append(0x53)  # S
            write_longstr(w, value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, bool):
            w.append(0x74)  # t
            w.append(1 if value else 0)
        elif isinstance(value, int):
            self.integer(value)
        elif value is None:
            w.append(0x56)  # V
        elif isinstance(value, dict):
            w.append(0x46)  # F
            self.sized_table(value, depth + 1)
        elif isinstance(value, list):
            w.append(0x41)  # A
            self.array(value, depth + 1)
        else:
            self.scalar(value)

    def integer(self, value: int) -> None:
        """Write an integer as `I` if it fits, else as `l`."""
        if -0x8000_0000 <= value <= 0x7FFF_FFFF:
            self.w.append(0x49)  # I
            write_i32_be(self.w, i32(i64(value)))
        elif -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
            self.w.append(0x6C)  # l
            write_i64_be(self.w, value)
        else:
            raise ValueError(f"{value} does not fit in a field table (64 bits, signed)")

    def scalar(self, value: object) -> None:
        """Write a value of a less common type."""
        w = self.w
        if isinstance(value, float):
            w.append(0x64)  # d
            write_f64_be(w, value)
        elif isinstance(value, bytes):
            w.append(0x78)  # x
            write_longstr(w, value)
        elif isinstance(value, Timestamp):
            w.append(0x54)  # T
            write_timestamp(w, value.seconds)
        elif isinstance(value, Decimal):
            self.decimal(value)
        elif isinstance(value, datetime):
            w.append(0x54)  # T
            write_timestamp(w, seconds_of(value))
        else:
            raise _refused(type(value).__name__)

    def decimal(self, value: Decimal) -> None:
        """Write a scale and an unsigned 32-bit number, as RabbitMQ reads them."""
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or len(digits) > 32:
            raise _refused(f"decimal {value}")
        number = 0
        for digit in digits:
            number = number * 10 + digit
        if 0 < exponent <= 10:
            number *= 10**exponent
            exponent = 0
        if (sign and number) or number > 0xFFFF_FFFF or not -255 <= exponent <= 0:
            raise _refused(f"decimal {value} (it has 32 bits, unsigned)")
        self.w.append(0x44)  # D
        self.w.append(-exponent)
        write_i32_be(self.w, i32(i64(number)))


def _refused(what: str) -> ValueError:
    """Return the error for a value without an AMQP type."""
    return ValueError(f"a field table cannot contain: {what}")


def patch_length(w: BytesWriter, at: i64, size: i64) -> None:
    """Overwrite the four bytes at `at` with `size`."""
    w[at] = u8(size >> 24 & 0xFF)
    w[at + 1] = u8(size >> 16 & 0xFF)
    w[at + 2] = u8(size >> 8 & 0xFF)
    w[at + 3] = u8(size & 0xFF)
