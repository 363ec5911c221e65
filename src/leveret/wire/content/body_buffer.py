"""A body that comes in many pieces, put together as they come.

A buffer that grows is copied where there is no room behind it: of a body of 128 MiB that took up to
56 ms.  So of a large body only the first quarter is collected, in parts; then the whole is made,
and each further piece takes as much of the parts with it.  Only then, because the size is what
somebody announced: nothing is made for bytes that may never come.

Invariants: it takes at most a quarter more memory than `taken` says; no write copies more than
`PART_BYTES`, or twice its piece where that is more.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import ResourceFault

#: A body up to this size grows in place, and so does each part of a larger one.
PART_BYTES: Final[i64] = 8 * 1024 * 1024

#: The whole of a large body is made when one of so many parts of it has come.
_WHOLE_AT: Final[i64] = 4


@final
class BodyBuffer:
    """The bytes of one body, of `size` bytes in all, as far as they have come."""

    def __init__(self, size: i64) -> None:
        self._size: Final[i64] = size
        #: How many bytes have come.
        self._come: i64 = 0
        #: The body from its begin; of a large one, as soon as a quarter of it has come.
        self._whole: BytesIO | None = None
        #: The parts of that quarter that are not in the whole yet, and where each begins in it.
        self._parts: list[BytesIO] = []
        self._places: list[int] = []
        #: How much of the last part is in the whole.
        self._moved: i64 = 0
        if size <= PART_BYTES:
            self._whole = BytesIO()

    def taken(self) -> i64:
        """Return the bytes of memory that count for it."""
        return self._come + self.ahead()

    def ahead(self) -> i64:
        """Return those of them for what has not come yet."""
        return 0 if self._whole is None or self._size <= PART_BYTES else self._size - self._come

    def write(self, piece: bytes) -> None:
        """Add the next piece; all of them have `size` bytes at most.

        Raises: ResourceFault (506) where the system has no memory for it.
        """
        try:
            self._write(piece)
        except MemoryError:
            raise ResourceFault(f"no memory left for a body of {self._size} bytes") from None

    def _write(self, piece: bytes) -> None:
        size: i64 = len(piece)
        whole = self._whole
        if whole is None:
            self._collect(piece)
        elif self._size <= PART_BYTES:
            # It grows in place and gives away what it holds.
            whole.write(piece)
        else:
            whole.seek(int(self._come))
            whole.write(piece)
            self._move(whole, size)
        self._come += size
        if self._whole is None and _WHOLE_AT * self._come >= self._size:
            self._whole = BytesIO(bytes(int(self._size)))

    def body(self) -> bytes:
        """Return the body, once all of it has come."""
        whole = self._whole
        if whole is None:
            return b""
        while self._parts:
            self._move(whole, PART_BYTES)
        return whole.getvalue()

    def _collect(self, piece: bytes) -> None:
        if not self._parts or self._come - i64(self._places[-1]) >= PART_BYTES:
            self._parts.append(BytesIO())
            self._places.append(int(self._come))
        self._parts[-1].write(piece)

    def _move(self, whole: BytesIO, size: i64) -> None:
        """Move `size` bytes of a part to where they belong, or what is left of it."""
        if not self._parts:
            return
        part = self._parts[-1]
        part.seek(int(self._moved))
        piece = part.read(int(size))
        whole.seek(int(i64(self._places[-1]) + self._moved))
        whole.write(piece)
        self._moved += len(piece)
        if len(piece) < size:
            self._parts.pop()
            self._places.pop()
            self._moved = 0
