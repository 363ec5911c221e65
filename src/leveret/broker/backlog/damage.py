"""Opening a stored chunk of a queue, and reporting the damage that is found.

The caller reads the bytes, and decides what the damage costs its queue.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.core.effects import DamagedChunk
from leveret.broker.queue.queue import Queue
from leveret.chunk import Chunk, ChunkDamaged
from leveret.store.segments.segments import ChunkRef, check_chunk


def open_chunk(
    queue: Queue, ref: ChunkRef, data: bytes, records: i64, report: bool
) -> Chunk | None:
    """Return a stored chunk of a queue, or None if it is damaged.

    Such a chunk costs `records` messages, which is reported where `report` asks for it.
    """
    try:
        return check_chunk(data, ref, queue.queue_id)
    except ChunkDamaged as damage:
        if report:
            what = f"queue '{queue.name}': the chunk {ref.first}-{ref.last}: {damage}"
            queue.turn.damaged.append(DamagedChunk(ref, data, what, records))
        return None


def report_messages(queue: Queue, ref: ChunkRef, data: bytes, sequences: list[int]) -> None:
    """Report the messages of a chunk that fail their check while the chunk does not."""
    what = f"queue '{queue.name}': the messages {sequences[:20]} do not check"
    queue.turn.damaged.append(DamagedChunk(ref, data, what, len(sequences)))
