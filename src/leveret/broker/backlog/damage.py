"""Opening the stored chunks of queues and streams, and reporting damage.

All readers of chunks use these functions: pages, streams, recovery and compaction.  The caller
reads the bytes, and decides how many messages its queue loses by the damage.

Invariant: a report of damage contains the bytes found, so that the shell can save them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import Source
from leveret.broker.scheduler.effects import DamagedChunk
from leveret.chunk import Chunk, ChunkDamaged
from leveret.store.segments.segments import ChunkRef, check_chunk

#: The maximum number of damaged messages of a chunk that a report lists.
_NAMED_MAX: Final = 20


def chunk_if_true(owner: i64, ref: ChunkRef, data: bytes) -> Chunk | None:
    """Return a stored chunk of the queue with the id `owner`, or None if it is damaged."""
    try:
        return check_chunk(data, ref, owner)
    except ChunkDamaged:
        return None


def whole_chunk(owner: i64, ref: ChunkRef, data: bytes) -> Chunk | None:
    """Return a stored chunk, or None if it or one of its messages is damaged."""
    chunk = chunk_if_true(owner, ref, data)
    return chunk if chunk is not None and not chunk.damaged() else None


def open_chunk(queue: Source, ref: ChunkRef, data: bytes, records: i64) -> Chunk | None:
    """Return a stored chunk; if it is damaged, report a loss of `records` and return None."""
    try:
        return check_chunk(data, ref, queue.queue_id)
    except ChunkDamaged as damage:
        report_chunk(queue, ref, data, damage, records)
        return None


def report_chunk(
    queue: Source, ref: ChunkRef, data: bytes, damage: ChunkDamaged, records: i64
) -> None:
    """Report a chunk that is damaged as a whole, with a loss of `records` messages."""
    what = f"queue '{queue.name}': the chunk {ref.first}-{ref.last}: {damage}"
    if queue.has_offsets:
        what = f"stream '{queue.name}': {ref} is damaged: {damage}"
    queue.core.damaged.append(DamagedChunk(ref, data, what, records))


def report_messages(queue: Source, ref: ChunkRef, data: bytes, sequences: list[int]) -> None:
    """Report damaged messages in a chunk that is otherwise intact."""
    named = sequences[:_NAMED_MAX]
    what = f"queue '{queue.name}': the messages {named} are damaged"
    if queue.has_offsets:
        what = f"stream '{queue.name}': {ref}: the messages {str(named)[1:-1]} are damaged"
    queue.core.damaged.append(DamagedChunk(ref, data, what, len(sequences)))
