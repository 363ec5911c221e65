"""Repair of a damaged chunk that a running broker reads.

A start replaces a damaged chunk by its remaining messages.  A reader has no access to the queue, so
it receives a chunk in which messages found elsewhere are restored, while the digests of the others
still do not match.

Invariants: a repair takes as long as reading the whole journal, so it runs outside the event loop
if possible.  An intact chunk is returned unchanged.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.chunk import Chunk, ChunkBuilder, ChunkDamaged, ChunkLayout
from leveret.limits import CHUNK_RECORDS_MAX
from leveret.store.disk import Disk, StorageFailure
from leveret.store.records.levels import stored_level
from leveret.store.recovery.copies import Copies, expiry_of
from leveret.store.recovery.lost_rows import LostRows
from leveret.store.segments.segments import (
    ChunkRef,
    check_chunk,
    check_chunk_head,
    placed_chunk,
    read_if_readable,
)
from leveret.store.segments.walk import read_what_can_be


@final
class BestChunk:
    """The bytes of a chunk after repair; `damaged` are the damaged bytes as read, or None.

    `whole` means that every message is intact.  `same` means that all digests match, so the bytes
    equal those originally written.
    """

    def __init__(self, data: bytes, damaged: bytes | None, whole: bool, same: bool) -> None:
        self.data: Final = data
        self.damaged: Final = damaged
        self.whole: Final = whole
        self.same: Final = same


def read_best(disk: Disk, seed: int, owner: i64, ref: ChunkRef, levels: i64) -> BestChunk:
    """Return the bytes of a chunk of the queue or stream `owner`, repaired as far as possible.

    If its columns are damaged, the chunk is rebuilt from messages, for a queue with these priority
    levels.  If `levels` is negative it is not rebuilt, because only the columns contain the due
    times of delayed messages.
    """
    data = _placed(owner, ref, read_if_readable(disk, ref))
    if is_whole(owner, ref, data):
        return BestChunk(data, None, True, True)
    if ref.temporary:
        # There are no other copies of its messages.
        return BestChunk(data, data, False, False)
    read = data if len(data) == ref.size else _placed(owner, ref, _readable_part(disk, ref))
    best = _mended(disk, seed, owner, ref, read, levels)
    return BestChunk(best, data, _checks(owner, ref, best), is_whole(owner, ref, best))


def _placed(owner: i64, ref: ChunkRef, data: bytes) -> bytes:
    """Change the header of an adopted chunk to its owner, if the header is intact."""
    try:
        return placed_chunk(data, ref, owner)
    except ChunkDamaged:
        return data


def heal(disk: Disk, ref: ChunkRef, data: bytes) -> None:
    """Write the original bytes of a chunk at its position again; ignore failures of the disk.

    If a crash interrupts this, the chunk has no more damage than before.
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
    """Return whether bytes are this chunk and match all its digests."""
    if len(data) != ref.size:
        return False
    try:
        check_chunk_head(data, ref, owner)
        return ChunkLayout(data).is_intact()
    except ChunkDamaged:
        return False


def _checks(owner: i64, ref: ChunkRef, data: bytes) -> bool:
    """Return whether bytes are this chunk and all its messages match their digests."""
    try:
        return not check_chunk(data, ref, owner).damaged()
    except ChunkDamaged:
        return False


def _readable_part(disk: Disk, ref: ChunkRef) -> bytes:
    """Return a chunk's bytes with zeros for unreadable parts, or b"" if the file is missing."""
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
    """Return a damaged chunk with the messages found elsewhere."""
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
        # A checkpoint has removed a file during the search.  Use the copies found so far.
        pass
    found = {sequence: copy.message for sequence, copy in copies.copies(owner).items()}
    if chunk is not None:
        return chunk.with_messages(found)
    return (_rebuilt(owner, ref, copies, levels) if levels >= 0 else b"") or data


def _rebuilt(owner: i64, ref: ChunkRef, copies: Copies, levels: i64) -> bytes:
    """Return a new chunk with the messages found elsewhere, or b"" if there are none."""
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
            level = stored_level(message, levels)
            builder.add(sequence, message, max(copy.count, 0), expiry_of(message), level)
        sequence += 1
    return builder.build()
