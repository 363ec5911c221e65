"""The queue or stream that takes over all staged messages of a batch by one journal record.

The arguments of such a batch's staging queues name the exchange and routing key of all messages
(`x-staging-exchange`), which lead to exactly one queue.  So no message has to be routed or
rewritten.  A small batch is copied.  The chunks of a large batch get a new owner, and no message is
read or written again.

A queue with limits, TTLs, priorities or deduplication has to check each message, and so cannot take
over a batch.

Invariant: all chunks are durable before the record that transfers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.scheduler.costs import LISTED_PER_COST
from leveret.broker.stream.stream import Stream
from leveret.limits import BATCH_BYTES_MIN, BATCH_MESSAGES_MIN
from leveret.message import Address
from leveret.wire.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from leveret.broker.sinks.staging import StagingQueue
    from leveret.broker.vhost.vhost import Vhost

Heir = Stream | ClassicQueue

#: The maximum number of staging queues and chunks that a queue takes over by one record, which is
#: some 0.5 MB; the messages of a larger batch are moved in parts.
QUEUES_GIVEN_MAX: Final = 512
_CHUNKS_GIVEN_MAX: Final = 4096

#: A batch with at most this many messages and bytes is copied by one record.
_COPIED_MESSAGES: Final = 256
_COPIED_BYTES: Final = 256 * 1024


def have_one_place(queues: list[StagingQueue]) -> bool:
    """Return whether all messages of staging queues go to one exchange with one routing key."""
    address = queues[0].address if queues else None
    return address is not None and all(_is_for(staging, address) for staging in queues)


def _is_for(staging: StagingQueue, address: Address) -> bool:
    own = staging.address
    return own is not None and own.wire == address.wire and staging.is_plain


def heir_of(vhost: Vhost, queues: list[StagingQueue]) -> Heir | None:
    """Return the queue or stream that can take over the messages of staging queues now, or None."""
    address = queues[0].address
    vhost.core.scheduler.spent += len(queues) // LISTED_PER_COST
    if address is None or len(queues) > QUEUES_GIVEN_MAX or vhost.core.events is not None:
        # Message events are recorded, which needs each message.
        return None
    exchange = vhost.exchanges.by_name.get(address.exchange.decode("utf-8", "surrogateescape"))
    if exchange is None:
        return None
    key = address.routing_key.decode("utf-8", "surrogateescape")
    routing = vhost.route(exchange, key, NO_PROPERTIES)
    if routing.dynamic or routing.refusal or len(routing.targets) != 1:
        return None
    target = routing.targets[0]
    queue = vhost.queues.by_name.get(target.name)
    if queue is None or queue.target is not target or target.checks_admission or target.bounded:
        return None
    if isinstance(queue, Stream):
        return queue if is_small(queues) or _has_large_parts(queues) else None
    return queue if isinstance(queue, ClassicQueue) and queue.can_adopt() else None


def is_small(queues: list[StagingQueue]) -> bool:
    """Return whether the messages of staging queues are few enough to be copied at once."""
    count, size = _amount(queues)
    return count <= _COPIED_MESSAGES and size <= _COPIED_BYTES


def can_be_copied(queues: list[StagingQueue]) -> bool:
    """Return whether there are few messages, and all of them are in memory."""
    return is_small(queues) and all(q.memory_count() == q.ready_count() for q in queues)


def _has_large_parts(queues: list[StagingQueue]) -> bool:
    """Return whether each queue has on average as much as a batch, which becomes a block."""
    count, size = _amount(queues)
    return count >= len(queues) * BATCH_MESSAGES_MIN or size >= len(queues) * BATCH_BYTES_MIN


def _amount(queues: list[StagingQueue]) -> tuple[i64, i64]:
    """Return the number of messages in staging queues, and their bytes."""
    count: i64 = 0
    size: i64 = 0
    for staging in queues:
        count += staging.ready_count()
        size += staging.ready_bytes()
    return count, size


def are_durable(queues: list[StagingQueue]) -> bool:
    """Return whether all chunks of staging queues are durable."""
    return all(staging.stored.are_durable() for staging in queues)


def can_be_given(queues: list[StagingQueue]) -> bool:
    """Return whether all messages of staging queues are in chunks, and only there."""
    chunks: i64 = 0
    for staging in queues:
        chunks += len(staging.stored.items)
        if staging.memory_count() > 0 or not staging.stored.are_complete():
            return False
    return chunks <= _CHUNKS_GIVEN_MAX


def give(queues: list[StagingQueue], heir: Heir) -> i64:
    """Transfer the chunks of staging queues to their heir; return the number of messages."""
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
