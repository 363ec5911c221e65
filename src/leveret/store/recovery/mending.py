"""Mending a chunk that was read damaged while the broker runs.

A start replaces a damaged chunk by what is left of it.  A reader has no queue at hand, and gets a
chunk instead in which every message that lies elsewhere is in its place, and every other one does
not check, as before.

Invariants: what is damaged takes as long as reading all of the journal, so it is called beside the
event loop where it can be; a chunk that is whole is returned as it is.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk, ChunkBuilder, ChunkDamaged, ChunkLayout
from leveret.limits import CHUNK_RECORDS_MAX
from leveret.store.disk import Disk, StorageFailure
from leveret.store.recovery.copies import Copies, expiry_of, level_of
from leveret.store.recovery.lost_rows import LostRows
from leveret.store.segments.segments import (
    ChunkRef,
    check_chunk,
    check_chunk_head,
    read_if_readable,
)
from leveret.store.segments.walk import read_what_can_be


@final
class BestChunk:
    """A chunk's best bytes; `damaged` are those that were read if they were not whole.

    `whole` means that every message is there; `same` that the bytes are those that were once
    written, by their own digests.
    """

    def __init__(self, data: bytes, damaged: bytes | None, whole: bool, same: bool) -> None:
        self.data: Final = data
        self.damaged: Final = damaged
        self.whole: Final = whole
        self.same: Final = same


def read_best(disk: Disk, seed: int, owner: i64, ref: ChunkRef, levels: i64) -> BestChunk:
    """Return the best bytes of a chunk of the queue or stream `owner`.

    If its columns are lost, a chunk is made from messages, for a queue whose highest priority is
    `levels`; not if that is negative: columns say when a delayed message is due, and it does not.
    """
    data = read_if_readable(disk, ref)
    if is_whole(owner, ref, data):
        return BestChunk(data, None, True, True)
    if ref.temporary:
        # Its messages are nowhere else.
        return BestChunk(data, data, False, False)
    read = data if len(data) == ref.size else _readable_part(disk, ref)
    best = _mended(disk, seed, owner, ref, read, levels)
    return BestChunk(best, data, _checks(owner, ref, best), is_whole(owner, ref, best))


def heal(disk: Disk, ref: ChunkRef, data: bytes) -> None:
    """Write the bytes of a chunk again that were once written at its place, if the disk takes them.

    A crash may leave a part of them, which is no worse than before.
    """
    try:
        file = disk.open(ref.path)
        try:
            file.pwrite(data, int(ref.position))
            file.sync()
        finally:
            file.close()
    except StorageFailure:
        return


def is_whole(owner: i64, ref: ChunkRef, data: bytes) -> bool:
    """Return whether bytes are those of a chunk, by its digests."""
    if len(data) != ref.size:
        return False
    try:
        check_chunk_head(data, ref, owner)
        return ChunkLayout(data).is_intact()
    except ChunkDamaged:
        return False


def _checks(owner: i64, ref: ChunkRef, data: bytes) -> bool:
    """Return whether bytes are a chunk of which every message checks."""
    try:
        return not check_chunk(data, ref, owner).damaged()
    except ChunkDamaged:
        return False


def _readable_part(disk: Disk, ref: ChunkRef) -> bytes:
    """Return the bytes of a chunk, with zeros for what cannot be read; nothing without its file."""
    try:
        file = disk.open(ref.path)
    except StorageFailure:
        return b""
    try:
        return read_what_can_be(file, ref.position, ref.size)
    except StorageFailure:
        return b""
    finally:
        file.close()


def _mended(disk: Disk, seed: int, owner: i64, ref: ChunkRef, data: bytes, levels: i64) -> bytes:
    """Return a damaged chunk with what lies elsewhere in its place."""
    chunk: Chunk | None = None
    broken: list[int] = []
    try:
        chunk = check_chunk(data, ref, owner)
        broken = chunk.damaged()
    except ChunkDamaged:
        pass
    copies = Copies(disk, seed)
    rows = LostRows(owner, ref, chunk, broken)
    rows.want(copies)
    try:
        for _ in copies.search():
            pass
    except StorageFailure:
        # A checkpoint has removed what was listed; what was found before counts.
        pass
    found = {sequence: copy.message for sequence, copy in copies.copies(owner).items()}
    if chunk is not None:
        return chunk.with_messages(found)
    return (_rebuilt(owner, ref, copies, levels) if levels >= 0 else b"") or data


def _rebuilt(owner: i64, ref: ChunkRef, copies: Copies, levels: i64) -> bytes:
    """Return a chunk of what was found of one whose columns are lost; nothing if nothing was."""
    found = copies.copies(owner)
    span: i64 = ref.last - ref.first + 1
    if not found or span > CHUNK_RECORDS_MAX:
        return b""
    builder = ChunkBuilder(owner, True)
    sequence: i64 = ref.first
    while sequence <= ref.last:
        copy = found.get(sequence)
        if copy is None:
            builder.add_lost(sequence)
        else:
            message = copy.message
            level = level_of(message, levels)
            builder.add(sequence, message, max(copy.count, 0), expiry_of(message), level)
        sequence += 1
    return builder.build()
