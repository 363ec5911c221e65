"""Changes to encoded properties that leave all other bytes as they were sent.

Decoding a headers table and encoding it again would lose the widths of its integers.  `raw` starts
with the property flags and was checked on arrival; see `properties.py`.

Invariant: the result is valid if `raw` is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.wire.buffer import BytesWriter, read_i16_be, read_i32_be
from leveret.wire.primitives import write_shortstr
from leveret.wire.properties import HEADERS, find_property, property_place, skip_property
from leveret.wire.tables import patch_length, value_end, write_entries

#: A table with more bytes is first searched for the names, which is much faster than iterating over
#: its entries.  For a smaller table the search would take longer.
_LOOKED_THROUGH: Final = 256


def edit_headers(
    raw: bytes, drop: list[bytes], more: dict[str, object], entries: bytes = b""
) -> bytes:
    """Return `raw` without the headers named in `drop`, and with the entries of `more` appended.

    `entries` are encoded table entries, appended last.

    Raises: ValueError for a value that a table cannot contain.
    """
    flags: i64 = i64(read_i16_be(raw, 0)) & 0xFFFF
    w = BytesWriter()
    if flags & HEADERS:
        at = find_property(raw, HEADERS)
        rest: i64 = at + 4 + i64(read_i32_be(raw, at))
        w.write(raw[: at + 4])
        _write_kept(w, raw, at + 4, rest, drop)
    else:
        if not more and not entries:
            return raw
        at = property_place(raw, flags, HEADERS)
        rest = at
        w.append(i64(raw[0]) | HEADERS >> 8)
        w.write(raw[1:at] + b"\x00\x00\x00\x00")
    if more:
        write_entries(w, more)
    w.write(entries)
    patch_length(w, at, i64(len(w)) - at - 4)
    w.write(raw[rest:])
    return w.getvalue()


def _write_kept(w: BytesWriter, raw: bytes, position: i64, end: i64, drop: list[bytes]) -> None:
    """Write the entries from `position` to `end` except those named in `drop`."""
    if end - position > _LOOKED_THROUGH and not _may_have(raw, position, end, drop):
        w.write(raw[position:end])
        return
    while position < end:
        value: i64 = position + 1 + i64(raw[position])
        after = value_end(raw, value)
        if raw[position + 1 : value] not in drop:
            w.write(raw[position:after])
        position = after


def _may_have(raw: bytes, position: i64, end: i64, names: list[bytes]) -> bool:
    """Return whether one of `names` occurs in the bytes from `position` to `end`."""
    for name in names:
        if raw.find(name, position, end) >= 0:
            return True
    return False


def without_property(raw: bytes, flag: i64) -> bytes:
    """Return `raw` without the property with that flag."""
    at = find_property(raw, flag)
    if at < 0:
        return raw
    return _with_flags(raw, ~flag, 0) + raw[2:at] + raw[skip_property(raw, at, flag) :]


def with_text(raw: bytes, flag: i64, text: str) -> bytes:
    """Return `raw` with the short string `text` as the property with that flag.

    Raises: ValueError if `text` is longer than 255 bytes.
    """
    flags: i64 = i64(read_i16_be(raw, 0)) & 0xFFFF
    at = property_place(raw, flags, flag)
    rest = skip_property(raw, at, flag) if flags & flag else at
    w = BytesWriter()
    w.write(_with_flags(raw, -1, flag))
    w.write(raw[2:at])
    write_shortstr(w, text)
    w.write(raw[rest:])
    return w.getvalue()


def _with_flags(raw: bytes, kept: i64, added: i64) -> bytes:
    """Return the flags of `raw`, masked with `kept` and with `added` set."""
    flags: i64 = ((i64(read_i16_be(raw, 0)) & 0xFFFF) & kept) | added
    return bytes((int(flags >> 8), int(flags & 0xFF)))
