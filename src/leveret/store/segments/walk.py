"""A walk over the chunks of a segment file in order, and over the damage between them.

It uses the chunks' own headers, so it needs no snapshot.  If a header is damaged, it continues at
the next intact one, which it finds at a known position or by the magic.

Invariants: the walk only reads, one chunk at a time.  Every byte of the file is in a chunk or in a
place that is reported as damaged.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import CHUNK_HEADER_BYTES, CHUNK_MARK, Chunk, ChunkDamaged, is_chunk_head
from leveret.store.disk import Disk, StorageFailure, StoreFile
from leveret.store.segments.segments import segment_path
from leveret.wire.buffer import read_i64_le

#: The position of the size in a chunk's header.
_SIZE_AT: Final = 96

_SEARCH_BYTES: Final = 1024 * 1024

#: The unit in which a failed read is repeated, to limit the loss.
_SECTOR_BYTES: Final = 4096


@final
class SegmentWalk:
    """A walk over the segment file `number`.

    After `next` returns True, the current place is `size` bytes at `position`.  `chunk` is the
    chunk there, or None if it is damaged, which `what` describes.  `tail` means that no intact
    chunk follows.
    """

    def __init__(self, disk: Disk, number: i64, known: list[int]) -> None:
        self.position: i64 = 0
        self.size: i64 = 0
        self.chunk: Chunk | None = None
        self.what = ""
        self.tail = False
        self._file = disk.open(segment_path(int(number)))
        self.bytes: Final[i64] = self._file.size()
        self._known = sorted(known)

    def next(self) -> bool:
        """Move to the next place; at the end of the file, close it and return False."""
        at: i64 = self.position + self.size
        self.position = at
        self.chunk = None
        if at >= self.bytes:
            self._file.close()
            return False
        size = self._size_at(at)
        if size < 0:
            self._pass_by(at)
            return True
        self.size = size
        try:
            self.chunk = Chunk(read_what_can_be(self._file, at, size))
        except ChunkDamaged as error:
            self.what = str(error)
        return True

    def _size_at(self, at: i64) -> i64:
        """Return the size of the chunk at a position, or -1 if its header is not intact."""
        head = read_what_can_be(self._file, at, CHUNK_HEADER_BYTES)
        if not is_chunk_head(head):
            return -1
        size = read_i64_le(head, _SIZE_AT)
        return size if size >= CHUNK_HEADER_BYTES and at + size <= self.bytes else -1

    def _pass_by(self, at: i64) -> None:
        """Make the bytes up to the next chunk the current place, as damaged."""
        found = self._find(at + 8)
        self.tail = found < 0
        self.size = (self.bytes if found < 0 else found) - at
        self.what = "no chunk is at this position"

    def _find(self, start: i64) -> i64:
        """Return the position of the next intact header, or -1."""
        for known in self._known:
            if known >= start and self._size_at(known) >= 0:
                return min(i64(known), self._search(start, known))
        return self._search(start, -1)

    def _search(self, start: i64, end: i64) -> i64:
        """Return the position of the first intact header from `start` to `end`, or `end`."""
        limit: i64 = self.bytes if end < 0 else end
        at: i64 = start
        while at < limit:
            block = read_what_can_be(self._file, at, _SEARCH_BYTES)
            hit: i64 = block.find(CHUNK_MARK)
            while hit >= 0:
                place: i64 = at + hit
                if place >= limit:
                    return end
                if place % 8 == 0 and self._size_at(place) >= 0:
                    return place
                hit = block.find(CHUNK_MARK, hit + 1)
            # A mark may span the end of the block.
            at += _SEARCH_BYTES - len(CHUNK_MARK)
        return end


def read_what_can_be(file: StoreFile, position: i64, size: i64) -> bytes:
    """Return bytes of a file, with zeros for the sectors that the disk fails to read."""
    try:
        return file.read(int(position), int(size))
    except StorageFailure:
        pass
    left: i64 = min(size, file.size() - position)
    parts: list[bytes] = []
    while left > 0:
        # Read up to the end of the sector, so that each sector is read once.
        part: i64 = min(left, _SECTOR_BYTES - position % _SECTOR_BYTES)
        try:
            parts.append(file.read(int(position), int(part)))
        except StorageFailure:
            parts.append(bytes(int(part)))
        position += part
        left -= part
    return b"".join(parts)
