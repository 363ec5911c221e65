"""Segment files: where chunks lie, and how one is found again.

    segments/<number>.seg    chunks, one after the other, each beginning at a multiple of 8

A file has no header: each chunk names its owner and its size, so that a manifest that is lost can
be told anew.  Chunks are never changed; a file goes when no kept snapshot refers to it.

Invariants: a reference is handed out for what it will hold, before the bytes are written; it is
used for reading only once they are.  A start never appends to an earlier start's file, so what a
crash left behind the last synced chunk is never mistaken.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.chunk import Chunk, ChunkDamaged
from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import SEGMENTS_DIR


def segment_path(number: int) -> str:
    """Return the path of the segment file `number`."""
    return f"{SEGMENTS_DIR}/{number:016d}.seg"


def segment_number(name: str) -> int:
    """Return the number of the segment file called `name`, or -1 if it is not one."""
    stem = name.removesuffix(".seg")
    return int(stem) if stem != name and len(stem) == 16 and stem.isdecimal() else -1


@final
@mypyc_attr(acyclic=True)
class ChunkRef:
    """Where a chunk lies and what it spans: sequences `first` to `last`, `count` messages."""

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
    ) -> None:
        self.file_number: Final[i64] = file_number
        self.position: Final[i64] = position
        self.size: Final[i64] = size
        self.first: Final[i64] = first
        self.last: Final[i64] = last
        self.count: Final[i64] = count
        self.min_timestamp: Final[i64] = min_timestamp
        self.max_timestamp: Final[i64] = max_timestamp

    def __repr__(self) -> str:
        return f"<chunk {self.first}-{self.last} at {self.file_number}:{self.position}>"


def read_chunk_bytes(disk: Disk, ref: ChunkRef) -> bytes:
    """Return what lies where `ref` points, fewer bytes where the file ends before.

    Raises: StorageFailure: the disk failed, or the file is not there.
    """
    file = disk.open(segment_path(int(ref.file_number)))
    try:
        return file.read(int(ref.position), int(ref.size))
    finally:
        file.close()


def read_if_readable(disk: Disk, ref: ChunkRef) -> bytes:
    """Return what lies where `ref` points, and nothing where the disk will not give it.

    A read that fails costs the chunk, as damage does, and not the broker: nothing was promised
    since that could be lost by it.
    """
    try:
        return read_chunk_bytes(disk, ref)
    except StorageFailure:
        return b""


def check_chunk(data: bytes, ref: ChunkRef, owner: i64) -> Chunk:
    """Return the chunk in `data`, read where `ref` points.

    Raises: ChunkDamaged: it does not check, or is not the one that `ref` means.
    """
    chunk = Chunk(data)
    if chunk.owner != owner or chunk.first != ref.first or chunk.last != ref.last:
        raise ChunkDamaged("another chunk lies here")
    return chunk


def read_chunk(disk: Disk, ref: ChunkRef, owner: i64) -> Chunk:
    """Return the chunk of the queue `owner` that `ref` points at.

    Raises: ChunkDamaged: it does not check.  StorageFailure: the disk failed.
    """
    return check_chunk(read_chunk_bytes(disk, ref), ref, owner)
