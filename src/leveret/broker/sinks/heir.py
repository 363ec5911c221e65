"""The queue or stream that takes over all staged messages of a batch by one journal record.

Each of its staging queues names it (`x-staging-target`), so that their messages are what they will
be: nothing is left to be routed or rewritten.  A small batch is copied.  Of a large one the chunks
change their owner, and no message is read or written again.

A queue that limits, expires, ranks or deduplicates its messages judges each of them, and so cannot
take over a batch.

Invariant: all chunks are durable before the record that gives them away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.scheduler.costs import LISTED_PER_COST
from leveret.broker.stream.stream import Stream
from leveret.limits import CHUNKS_GIVEN_MAX, QUEUES_GIVEN_MAX

if TYPE_CHECKING:
    from leveret.broker.sinks.staging import StagingQueue
    from leveret.broker.vhost.vhost import Vhost

Heir = Stream | ClassicQueue

#: A batch of at most so many messages and bytes is copied by one record.
_COPIED_MESSAGES: Final = 256
_COPIED_BYTES: Final = 256 * 1024

#: Messages and bytes of a staging queue, on average, from which a stream takes over its chunks:
#: each becomes a block, and many small ones would slow down its readers.
_BLOCK_MESSAGES: Final = 256
_BLOCK_BYTES: Final = 64 * 1024


def common_target(queues: list[StagingQueue]) -> str:
    """Return the queue or stream to which all messages go as they are, or an empty text."""
    name = queues[0].goes_to if queues else ""
    for staging in queues:
        if staging.goes_to != name or not staging.is_plain:
            return ""
    return name


def heir_of(vhost: Vhost, queues: list[StagingQueue]) -> Heir | None:
    """Return the queue or stream that can take over the messages of staging queues now, or None."""
    queue = vhost.queues.by_name.get(queues[0].goes_to)
    vhost.core.scheduler.spent += len(queues) // LISTED_PER_COST
    if queue is None or vhost.core.events is not None or len(queues) > QUEUES_GIVEN_MAX:
        # Each message is an event.
        return None
    target = queue.target
    if target.checks_admission or target.bounded:
        return None
    found = vhost.route(vhost.exchanges.by_name[""], queue.name, b"\0\0")
    if len(found.targets) != 1 or found.targets[0] is not target:
        return None
    if isinstance(queue, Stream):
        return queue if is_small(queues) or _has_large_parts(queues) else None
    return queue if isinstance(queue, ClassicQueue) and queue.can_adopt() else None


def is_small(queues: list[StagingQueue]) -> bool:
    """Return whether the messages of staging queues are few enough to be copied at once."""
    count, size = _amount(queues)
    return count <= _COPIED_MESSAGES and size <= _COPIED_BYTES


def _has_large_parts(queues: list[StagingQueue]) -> bool:
    count, size = _amount(queues)
    return count >= len(queues) * _BLOCK_MESSAGES or size >= len(queues) * _BLOCK_BYTES


def _amount(queues: list[StagingQueue]) -> tuple[i64, i64]:
    """Return the number of messages in staging queues, and their bytes."""
    count: i64 = 0
    size: i64 = 0
    for staging in queues:
        count += staging.ready_count()
        size += staging.ready_bytes()
    return count, size


def can_be_given(queues: list[StagingQueue]) -> bool:
    """Return whether all messages of staging queues are in chunks, and these are durable."""
    chunks: i64 = 0
    for staging in queues:
        chunks += len(staging.stored.items)
        if staging.memory_count() > 0 or not staging.stored.all_written():
            return False
    return chunks <= CHUNKS_GIVEN_MAX


def give(queues: list[StagingQueue], heir: Heir) -> i64:
    """Give the chunks of staging queues to their heir; return the number of messages."""
    count: i64 = 0
    for staging in queues:
        count += staging.ready_count()
        refs = staging.give_away()
        heir.core.scheduler.spent += len(refs)
        heir.adopt(refs)
    share = heir.target.share
    if share is not None:
        share.note()
    heir.target.published += count
    return count
