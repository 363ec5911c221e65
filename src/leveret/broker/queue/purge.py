"""The work that remains after a purge.

Purged messages have left their queue, but are still in the journal and in chunks on disk.  A task
acks each message in the journal and forgets it in its chunk.  After a crash before its end, the
messages not yet acked are in the queue again.

Invariant: messages that enter the queue after the purge are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.backlog.window import TAKEN, RequeuedMessage, Window

if TYPE_CHECKING:
    from leveret.broker.backlog.detached import Detached
    from leveret.broker.backlog.pages import Pages
    from leveret.broker.queue.deduplication import QueuedKeys
    from leveret.broker.queue.waiting import WaitingQueue

#: The number of places of a window that are acked together.
_ACKED_AT_ONCE: Final = 512


def purge_rest(
    queue: WaitingQueue, detached: Detached, pages: Pages | None, parked: dict[i64, RequeuedMessage]
) -> Iterator[int]:
    """Ack purged messages in the journal, and forget their keys and chunks.

    `pages` are the queue's pages, which forget the messages on disk.  `parked` are the messages
    that waited for their retry.
    """
    for cost in _forget_all(queue, detached, pages, parked):
        yield cost
        if queue.deleted:
            # The record of its deletion covers all its messages.
            break
    queue.core.memory.free_table(parked)
    detached.free(queue.core)


def _forget_all(
    queue: WaitingQueue, detached: Detached, pages: Pages | None, parked: dict[i64, RequeuedMessage]
) -> Iterator[int]:
    keys = queue.known_keys()
    # Keep the keys of later messages.
    end = queue.next_number()
    listed = [] if keys is None else list(keys.sequences)
    yield len(listed) >> 6
    while parked:
        sequence: i64 = parked.popitem()[0]
        queue.out.pop(sequence)
        _ack(queue, sequence, sequence)
        yield 1
    while keys is not None and listed:
        _forget_key(queue, keys, listed.pop(), end)
        yield 1
    if not queue.recorded and queue.stored.through == 0:
        return
    for window in detached.windows:
        yield from _ack_window(queue, window)
    if detached.returns is not None:
        for block in detached.returns.blocks():
            for sequence in list(block.messages):
                _ack(queue, sequence, sequence)
                yield 1
    if detached.at is not None:
        for items in detached.at.blocks():
            for item in items.items:
                if item is not None:
                    _ack(queue, item.sequence, item.sequence)
                    yield 1
    for page in detached.pages:
        if page.window is not None:
            yield from _ack_window(queue, page.window)
        elif pages is not None:
            pages.let_go_of(page)
            yield 1


def _forget_key(queue: WaitingQueue, keys: QueuedKeys, key: bytes, end: i64) -> None:
    """Forget the key of a message below `end`, unless the message is unacked."""
    number = keys.sequences.get(key)
    if number is None or number >= end:
        return
    if not queue.out.has(number) and number not in keys.handed:
        keys.forget(key)


def _ack_window(queue: WaitingQueue, window: Window) -> Iterator[int]:
    """Ack all messages of a window, consecutive ones together."""
    items = window.items
    size: i64 = len(items)
    place: i64 = window.head
    base: i64 = window.head_sequence - window.head
    while place < size:
        begin: i64 = place
        end: i64 = min(place + _ACKED_AT_ONCE, size)
        first: i64 = place
        while place < end:
            if items[place] is TAKEN:
                if first < place:
                    _ack(queue, base + first, base + place - 1)
                first = place + 1
            place += 1
        if first < end:
            _ack(queue, base + first, base + end - 1)
        yield int(end - begin)


def _ack(queue: WaitingQueue, first: i64, last: i64) -> None:
    """Forget messages with consecutive sequences."""
    if queue.recorded:
        # The journal ignores messages that were never journaled.
        queue.core.journal.ack(queue.queue_id, first, last)
    stored = queue.stored
    while first <= last and first <= stored.through:
        stored.forget(first)
        first += 1
