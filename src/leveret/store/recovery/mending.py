"""Repairing a damaged chunk that a running broker reads.

A start replaces a damaged chunk by its remaining messages.  A reader has no access to the queue:
it gets a chunk in which messages that were found elsewhere are restored, and the others still fail
their checksums.

Invariants: repairing a chunk takes as long as reading the whole journal, so it runs off the event
loop where possible; an intact chunk is returned as it is.
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
    """The bytes of a chunk after repair; `damaged` are the bytes that were read, or None.

    `whole` means that every message is intact; `same` that the bytes match their digests, and so
    are those that were once written.
    """

    def __init__(self, data: bytes, damaged: bytes | None, whole: bool, same: bool) -> None:
        self.data: Final = data
        self.damaged: Final = damaged
        self.whole: Final = whole
        self.same: Final = same


def read_best(disk: Disk, seed: int, owner: i64, ref: ChunkRef, levels: i64) -> BestChunk:
    """Return the bytes of a chunk of the queue or stream `owner`, repaired as far as possible.

    If its columns are damaged, the chunk is rebuilt from messages, for a queue whose highest
    priority is `levels`; not if that is negative, because only the columns say when a delayed
    message is due.
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
    """Return an adopted chunk as one of its owner, if its header is intact."""
    try:
        return placed_chunk(data, ref, owner)
    except ChunkDamaged:
        return data


def heal(disk: Disk, ref: ChunkRef, data: bytes) -> None:
    """Write the original bytes of a chunk to its place again, unless the disk fails.

    If a crash interrupts it, the chunk is no worse than before.
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
    """Return whether bytes match all digests of a chunk."""
    if len(data) != ref.size:
        return False
    try:
        check_chunk_head(data, ref, owner)
        return ChunkLayout(data).is_intact()
    except ChunkDamaged:
        return False


def _checks(owner: i64, ref: ChunkRef, data: bytes) -> bool:
    """Return whether bytes are a chunk whose messages all match their digests."""
    try:
        return not check_chunk(data, ref, owner).damaged()
    except ChunkDamaged:
        return False


def _readable_part(disk: Disk, ref: ChunkRef) -> bytes:
    """Return the bytes of a chunk, with zeros for unreadable parts; empty if the file is gone."""
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
    """Return a damaged chunk with the messages that were found elsewhere."""
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
        # A checkpoint has removed a file meanwhile; use the copies found before.
        pass
    found = {sequence: copy.message for sequence, copy in copies.copies(owner).items()}
    if chunk is not None:
        return chunk.with_messages(found)
    return (_rebuilt(owner, ref, copies, levels) if levels >= 0 else b"") or data


def _rebuilt(owner: i64, ref: ChunkRef, copies: Copies, levels: i64) -> bytes:
    """Return a new chunk of the messages that were found; empty if there are none."""
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
