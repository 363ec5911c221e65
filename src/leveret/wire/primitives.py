"""Writing of AMQP integers and strings, with range checks.

Tables are written in `tables.py`, and arguments are read in `fields.py`.

Invariant: an invalid value raises `ValueError` before any of it is written.

Source: AMQP 0-9-1 section 4.2.5.
"""

from __future__ import annotations

from datetime import datetime

from mypy_extensions import i16, i32, i64

from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.wire.buffer import BytesWriter, write_i16_be, write_i32_be, write_i64_be


def write_octet(w: BytesWriter, value: int) -> None:
    """Write an unsigned 8-bit integer.

    Raises: ValueError when it does not fit.
    """
    if not 0 <= value <= 0xFF:
        raise ValueError(f"{value} is not an octet (0 to 255)")
    w.append(value)


def write_short(w: BytesWriter, value: int) -> None:
    """Write an unsigned 16-bit integer.

    Raises: ValueError when it does not fit.
    """
    if not 0 <= value <= 0xFFFF:
        raise ValueError(f"{value} is not a short (0 to 65535)")
    number: i64 = value
    write_i16_be(w, i16(number))


def write_long(w: BytesWriter, value: int) -> None:
    """Write an unsigned 32-bit integer.

    Raises: ValueError when it does not fit.
    """
    if not 0 <= value <= 0xFFFF_FFFF:
        raise ValueError(f"{value} is not a long (0 to 4294967295)")
    number: i64 = value
    write_i32_be(w, i32(number))


def write_timestamp(w: BytesWriter, value: int) -> None:
    """Write an unsigned 64-bit integer.

    Raises: ValueError when it does not fit.
    """
    if not 0 <= value <= 0xFFFF_FFFF_FFFF_FFFF:
        raise ValueError(f"{value} is not a timestamp (0 to 2^64 - 1)")
    if value > 0x7FFF_FFFF_FFFF_FFFF:
        value -= 0x1_0000_0000_0000_0000
    write_i64_be(w, value)


def seconds_of(moment: datetime) -> int:
    """Convert a datetime to an AMQP time: whole seconds since 1970, rounded down.

    Raises: ValueError for a time without a time zone, or before 1970.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment} needs a time zone, for example datetime.now(UTC)")
    seconds = int(moment.timestamp() // 1)
    if seconds < 0:
        raise ValueError(f"{moment}: AMQP has no time before 1970")
    return seconds


def checked_i64(value: int) -> i64:
    """Return `value` as a signed 64-bit integer.

    Raises: ValueError when it does not fit.
    """
    if not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        raise ValueError(f"{value} does not fit in 64 bits")
    return value


def write_shortstr(w: BytesWriter, value: str) -> None:
    """Write text as a short UTF-8 string.

    Surrogates from bytes that were not UTF-8 (PEP 383) are written as those bytes.

    Raises: ValueError above 255 bytes.
    """
    raw = value.encode("utf-8", "surrogateescape")
    size = len(raw)
    if size > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"a short string holds at most 255 bytes, not {size}")
    w.append(size)
    w.write(raw)


def write_longstr(w: BytesWriter, value: bytes) -> None:
    """Write bytes as a long string.

    Raises: ValueError at 2^31 bytes and more.
    """
    size: i64 = len(value)
    if size > 0x7FFF_FFFF:
        raise ValueError(f"a long string of {size} bytes is refused")
    write_i32_be(w, i32(size))
    w.write(value)
