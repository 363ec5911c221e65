"""A body that arrives in many pieces, assembled on arrival.

A growing buffer is copied when there is no room behind it, which took up to 56 ms for a body of
128 MiB.  So only the first quarter of a large body is collected in parts.  Then the whole buffer is
allocated, and each further piece moves the same amount of the parts into it.  It is not allocated
earlier, because the size is only an announcement: no memory is reserved for bytes that may never
arrive.

Invariants: it uses at most a quarter more memory than `taken` returns; no write copies more than
`PART_BYTES`, or twice its piece if that is more.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import ResourceFault

#: A body up to this size grows in place, and so does each part of a larger one.
PART_BYTES: Final[i64] = 8 * 1024 * 1024

#: The whole buffer is allocated when this fraction (one quarter) of a large body has arrived.
_WHOLE_AT: Final[i64] = 4


@final
class BodyBuffer:
    """The bytes received of one body with `size` bytes in all."""

    def __init__(self, size: i64) -> None:
        self._size: Final[i64] = size
        #: The number of bytes received.
        self._come: i64 = 0
        #: The body from its start; for a large one, allocated when a quarter has arrived.
        self._whole: BytesIO | None = None
        #: The parts of that quarter that are not moved yet, and the offset of each in the body.
        self._parts: list[BytesIO] = []
        self._places: list[int] = []
        #: How much of the last part has been moved.
        self._moved: i64 = 0
        if size <= PART_BYTES:
            self._whole = BytesIO()

    def taken(self) -> i64:
        """Return the bytes of memory to account for it."""
        return self._come + self.ahead()

    def ahead(self) -> i64:
        """Return the part of `taken` reserved for bytes that have not arrived."""
        return 0 if self._whole is None or self._size <= PART_BYTES else self._size - self._come

    def write(self, piece: bytes) -> None:
        """Add the next piece; the pieces have at most `size` bytes in all.

        Raises: ResourceFault (506) if the system is out of memory.
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
            # It grows in place, and `getvalue` does not copy it.
            whole.write(piece)
        else:
            whole.seek(int(self._come))
            whole.write(piece)
            self._move(whole, size)
        self._come += size
        if self._whole is None and _WHOLE_AT * self._come >= self._size:
            self._whole = BytesIO(bytes(int(self._size)))

    def body(self) -> bytes:
        """Return the body, once all of it has arrived."""
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
        """Move up to `size` bytes of a part to their place in the body."""
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
