"""Segment files, and references to the chunks in them.

    segments/<number>.seg    chunks, one after the other, each beginning at a multiple of 8
    segments/<number>.tmp    the same, for messages that end with the process

A file has no header.  Each chunk contains its owner and its size, so that lost references can be
rebuilt.  Chunks never change.  A file is removed when no remaining snapshot refers to it.

Invariants: a reference is created before its chunk is written, and is used for reading only
afterwards.  A start never appends to a file of an earlier start, so bytes that a crash left after
the last synced chunk are never mistaken for a chunk.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import (
    CHUNK_HEADER_BYTES,
    NEVER,
    Chunk,
    ChunkBuilder,
    ChunkDamaged,
    is_chunk_head,
    placed,
)
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import SEGMENTS_DIR
from leveret.wire.buffer import read_i64_le


def segment_path(number: int) -> str:
    """Return the path of the segment file `number`."""
    return f"{SEGMENTS_DIR}/{number:016d}.seg"


def temporary_path(number: int) -> str:
    """Return the path of the temporary file `number`."""
    return f"{SEGMENTS_DIR}/{number:016d}.tmp"


def segment_number(name: str) -> int:
    """Return the number of the segment file called `name`, or -1 if it is not one."""
    return _number(name, ".seg")


def temporary_number(name: str) -> int:
    """Return the number of the temporary file called `name`, or -1 if it is not one."""
    return _number(name, ".tmp")


def _number(name: str, suffix: str) -> int:
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == 16 and stem.isdecimal() else -1


@final
class SegmentNumbers:
    """Assigns the numbers of new files, each once."""

    def __init__(self, first: i64) -> None:
        #: The lowest unused number.
        self.next: i64 = first

    def take(self) -> i64:
        """Return an unused number."""
        number = self.next
        self.next = number + 1
        return number


@final
@mypyc_attr(acyclic=True)
class ChunkRef:
    """A reference to a chunk of `count` messages with sequences from `first` to `last`.

    `persistent`, `persistent_bytes` and `persistent_bodies` are the number, the bytes and the body
    bytes of its persistent messages.  `min_expiry` is the earliest expiry of a message, in ms or
    NEVER, and `count_max` the highest delivery count.  `temporary` means that the file ends with
    the process.  `adopted` means that the chunk was written for another owner, with other sequences
    (`chunk.placed`).
    """

    def __init__(
        self,
        file_number: i64,
        position: i64,
        size: i64,
        first: i64,
        last: i64,
        count: i64,
        min_timestamp: i64,
        max_timestamp: i64,
        persistent: i64 = 0,
        persistent_bytes: i64 = 0,
        persistent_bodies: i64 = 0,
        min_expiry: i64 = NEVER,
        count_max: i64 = 0,
        temporary: bool = False,
        adopted: bool = False,
    ) -> None:
        self.file_number: Final[i64] = file_number
        self.position: Final[i64] = position
        self.size: Final[i64] = size
        self.first: Final[i64] = first
        self.last: Final[i64] = last
        self.count: Final[i64] = count
        self.min_timestamp: Final[i64] = min_timestamp
        self.max_timestamp: Final[i64] = max_timestamp
        self.persistent: Final[i64] = persistent
        self.persistent_bytes: Final[i64] = persistent_bytes
        self.persistent_bodies: Final[i64] = persistent_bodies
        self.min_expiry: Final[i64] = min_expiry
        self.count_max: Final[i64] = count_max
        self.temporary: Final = temporary
        self.adopted: Final = adopted

    @property
    def path(self) -> str:
        """The path of the file."""
        number = int(self.file_number)
        return temporary_path(number) if self.temporary else segment_path(number)

    def __repr__(self) -> str:
        return f"<chunk {self.first}-{self.last} at {self.file_number}:{self.position}>"


def chunk_ref(
    builder: ChunkBuilder, file_number: i64, position: i64, size: i64, temporary: bool = False
) -> ChunkRef:
    """Return the reference to a builder's chunk, which has `size` bytes at that position."""
    return ChunkRef(
        file_number,
        position,
        size,
        builder.first,
        builder.last,
        builder.count,
        builder.min_timestamp,
        builder.max_timestamp,
        builder.persistent,
        builder.persistent_bytes,
        builder.persistent_bodies,
        builder.min_expiry,
        builder.count_max,
        temporary,
    )


def moved_ref(ref: ChunkRef, file_number: i64, position: i64) -> ChunkRef:
    """Return the reference to a copy of a chunk at another position."""
    return _changed_ref(ref, file_number, position, ref.first, False)


def adopted_ref(ref: ChunkRef, first: i64) -> ChunkRef:
    """Return the reference for another owner, in which the chunk's sequences begin at `first`."""
    return _changed_ref(ref, ref.file_number, ref.position, first, True)


def _changed_ref(
    ref: ChunkRef, file_number: i64, position: i64, first: i64, adopted: bool
) -> ChunkRef:
    return ChunkRef(
        file_number,
        position,
        ref.size,
        first,
        first + ref.last - ref.first,
        ref.count,
        ref.min_timestamp,
        ref.max_timestamp,
        ref.persistent,
        ref.persistent_bytes,
        ref.persistent_bodies,
        ref.min_expiry,
        ref.count_max,
        False,
        adopted,
    )


def read_chunk_bytes(disk: Disk, ref: ChunkRef) -> bytes:
    """Return the bytes at `ref`, or fewer if the file is too short.

    Raises: StorageFailure if the disk fails or the file does not exist.
    """
    file = disk.open(ref.path)
    try:
        return file.read(int(ref.position), int(ref.size))
    finally:
        file.close()


def read_part_if_readable(disk: Disk, ref: ChunkRef, at: int, size: int) -> bytes:
    """Return `size` bytes of the chunk at `ref` from `at`, or fewer if the file is too short.

    Return b"" if the disk fails or the file does not exist.
    """
    try:
        file = disk.open(ref.path)
        try:
            return file.read(int(ref.position) + at, size)
        finally:
            file.close()
    except StorageFailure:
        return b""


def read_if_readable(disk: Disk, ref: ChunkRef) -> bytes:
    """Return the bytes at `ref`, or b"" if the disk fails to read them.

    A failed read loses the chunk, as damage does.  It does not stop the broker, because unlike a
    failed write it affects no later confirm.
    """
    try:
        return read_chunk_bytes(disk, ref)
    except StorageFailure:
        return b""


def placed_chunk(data: bytes, ref: ChunkRef, owner: i64) -> bytes:
    """Return the bytes read at `ref`, with the header changed to its owner if it is adopted.

    Raises: ChunkDamaged if an adopted chunk has no intact header.
    """
    return placed(data, owner, ref.first) if ref.adopted else data


def check_chunk(data: bytes, ref: ChunkRef, owner: i64) -> Chunk:
    """Return the chunk in `data`, which was read at `ref`.

    Raises: ChunkDamaged if it is damaged, or is not the chunk to which `ref` refers.
    """
    chunk = Chunk(placed_chunk(data, ref, owner))
    if chunk.owner != owner or chunk.first != ref.first or chunk.last != ref.last:
        raise ChunkDamaged("another chunk is at this position")
    return chunk


def check_chunk_head(data: bytes, ref: ChunkRef, owner: i64) -> None:
    """Check only that `data` begins with the header of the chunk to which `ref` refers.

    Raises: ChunkDamaged if it does not, or the header is incomplete.
    """
    head = placed_chunk(data[:CHUNK_HEADER_BYTES], ref, owner)
    if not is_chunk_head(head):
        raise ChunkDamaged("a chunk's header is damaged")
    if (
        read_i64_le(head, 8) != owner
        or read_i64_le(head, 16) != ref.first
        or read_i64_le(head, 24) != ref.last
        or read_i64_le(head, 96) != ref.size
    ):
        raise ChunkDamaged("another chunk is at this position")


def read_chunk(disk: Disk, ref: ChunkRef, owner: i64) -> Chunk:
    """Return the chunk of the queue `owner` at `ref`.

    Raises: ChunkDamaged if it is damaged; StorageFailure if the disk fails.
    """
    return check_chunk(read_chunk_bytes(disk, ref), ref, owner)
