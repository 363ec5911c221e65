"""Sequential reading of the arguments of a method or the properties of a content header.

A `FieldReader` reads bytes sent by a peer, so each step checks that enough bytes are left.
Invariant: for any input, only `SyntaxFault` (502), `FrameError` (501, a name that is not UTF-8, as
in RabbitMQ) and `PreconditionFailed` (406, a name of line ends only) are raised.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import FrameError, SyntaxFault
from leveret.names import Name, cleaned
from leveret.wire.buffer import read_i16_be, read_i32_be, read_i64_be
from leveret.wire.tables import read_table, read_u64, skim_table


@final
class FieldReader:
    """Reads fields from `data`, starting at `position` and never beyond `end`."""

    def __init__(self, data: bytes, position: i64, end: i64) -> None:
        self.data: Final = data
        self.position: i64 = position
        self.end: Final[i64] = end

    def step(self, size: i64) -> i64:
        """Advance by `size` bytes; return the position before them.

        Raises: SyntaxFault (502) if fewer bytes are left.
        """
        start = self.position
        if size < 0 or size > self.end - start:
            raise SyntaxFault("the fields end early")
        self.position = start + size
        return start

    def octet(self) -> i64:
        """Return an unsigned 8-bit integer."""
        return i64(self.data[self.step(1)])

    def short(self) -> i64:
        """Return an unsigned 16-bit integer."""
        return i64(read_i16_be(self.data, self.step(2))) & 0xFFFF

    def long(self) -> i64:
        """Return an unsigned 32-bit integer."""
        return i64(read_i32_be(self.data, self.step(4))) & 0xFFFF_FFFF

    def longlong(self) -> i64:
        """Return a signed 64-bit integer, since tags of 2^63 or more are never assigned."""
        return read_i64_be(self.data, self.step(8))

    def timestamp(self) -> int:
        """Return an unsigned 64-bit integer."""
        return read_u64(self.data, self.step(8))

    def shortstr(self) -> str:
        """Return a short string that must be UTF-8.

        Raises: FrameError (501) if it is not.
        """
        size = self.octet()
        start = self.step(size)
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise FrameError("Malformed UTF-8 in shortstr") from None

    def name(self) -> Name:
        """Return the name of an exchange or a queue, without line ends.

        Raises: FrameError (501) if it is not UTF-8; PreconditionFailed (406) for line ends only.
        """
        return cleaned(self.shortstr())

    def text(self) -> str:
        """Return a short string; bytes that are not UTF-8 become surrogates (PEP 383).

        Some publishers put raw bytes into a correlation_id, and RabbitMQ passes them on.
        """
        size = self.octet()
        start = self.step(size)
        return self.data[start : start + size].decode("utf-8", "surrogateescape")

    def longstr(self) -> bytes:
        """Return the bytes of a long string."""
        size = self.long()
        start = self.step(size)
        return self.data[start : start + size]

    def table(self) -> dict[str, object]:
        """Return a field table."""
        table, self.position = read_table(self.data, self.position, self.end)
        return table

    def headers(self) -> dict[str, object]:
        """Return a message's headers, limited by the frame only, because brokers add entries."""
        most = self.end - self.position
        table, self.position = read_table(self.data, self.position, self.end, most)
        return table

    def skip_shortstr(self) -> None:
        """Skip a short string without checking its content."""
        self.step(self.octet())

    def skip_longstr(self) -> None:
        """Skip a long string."""
        self.step(self.long())

    def skip_table(self) -> None:
        """Check and skip a field table."""
        self.position = skim_table(self.data, self.position, self.end)

    def finish(self) -> None:
        """Check that all bytes were read.

        Raises: SyntaxFault (502).
        """
        if self.position != self.end:
            raise SyntaxFault(f"{self.end - self.position} bytes follow the last field")
