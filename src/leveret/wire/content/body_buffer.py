"""A body that arrives in many pieces, assembled on arrival.

A growing buffer is copied if it cannot be extended in place, which took up to 56 ms for a body of
128 MiB.  The first quarter of a large body is therefore collected in parts.  Then a buffer for the
whole body is allocated, and each further piece also moves the same number of bytes from the parts
into it.  The buffer is not allocated earlier, so that no memory is reserved for announced bytes
that may never arrive.

Invariants: the buffers use at most a quarter more memory than `taken` returns; no write copies more
than `PART_BYTES`, or twice its piece if that is more.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import ResourceFault

#: A body up to this size grows in place, as does each part of a larger body.
PART_BYTES: Final[i64] = 8 * 1024 * 1024

#: The buffer for a large body is allocated when a quarter of the body (1/4) has arrived.
_WHOLE_AT: Final[i64] = 4


@final
class BodyBuffer:
    """The received bytes of one body of `size` bytes."""

    def __init__(self, size: i64) -> None:
        self._size: Final[i64] = size
        #: The number of bytes received.
        self._come: i64 = 0
        #: The buffer for the whole body; None until a quarter of a large body has arrived.
        self._whole: BytesIO | None = None
        #: The parts that are not moved yet, and the offset of each in the body.
        self._parts: list[BytesIO] = []
        self._places: list[int] = []
        #: The number of bytes moved from the last part.
        self._moved: i64 = 0
        if size <= PART_BYTES:
            self._whole = BytesIO()

    def taken(self) -> i64:
        """Return the number of bytes to account for the body."""
        return self._come + self.ahead()

    def ahead(self) -> i64:
        """Return the part of `taken` reserved for bytes that have not arrived."""
        return 0 if self._whole is None or self._size <= PART_BYTES else self._size - self._come

    def write(self, piece: bytes | memoryview) -> None:
        """Add the next piece; all pieces together have at most `size` bytes.

        Raises: ResourceFault (506) if the system is out of memory.
        """
        try:
            self._write(piece)
        except MemoryError:
            raise ResourceFault(f"no memory left for a body of {self._size} bytes") from None

    def _write(self, piece: bytes | memoryview) -> None:
        size: i64 = len(piece)
        whole = self._whole
        if whole is None:
            self._collect(piece)
        elif self._size <= PART_BYTES:
            # The buffer grows in place, and `getvalue` does not copy it.
            whole.write(piece)
        else:
            whole.seek(int(self._come))
            whole.write(piece)
            self._move(whole, size)
        self._come += size
        if self._whole is None and _WHOLE_AT * self._come >= self._size:
            self._whole = BytesIO(bytes(int(self._size)))

    def body(self) -> bytes:
        """Return the complete body."""
        whole = self._whole
        if whole is None:
            return b""
        while self._parts:
            self._move(whole, PART_BYTES)
        return whole.getvalue()

    def _collect(self, piece: bytes | memoryview) -> None:
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
