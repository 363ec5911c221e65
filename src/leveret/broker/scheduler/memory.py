"""Counts the memory of messages, for all parts of the core.

A caller that takes a message into memory books its bytes here, and releases them when the message
leaves memory.

Invariants: a message in several queues counts once for each of them; only the methods here change
the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import FREED_BYTES_PER_COST, MESSAGES_FREED_PER_COST
from leveret.broker.scheduler.retained_share import RetentionShare
from leveret.broker.scheduler.unacked_share import UnackedShare
from leveret.limits import CHUNK_BYTES_MAX, LARGE_MESSAGE_BYTES
from leveret.message import Message, PlacedMessage
from leveret.wire.content.body_buffer import BodyBuffer

if TYPE_CHECKING:
    from leveret.broker.scheduler.scheduler import Scheduler

#: The maximum number of objects, and of bytes of messages, that are freed at once.
_FREED_AT_ONCE: i64 = 512
_FREED_BYTES_AT_ONCE: i64 = 1 << 25


@final
class Memory:
    """The account of message memory; sizes are bytes of bodies and properties."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        #: Bytes and number of the messages held in memory, each counted once per queue.
        self.held_bytes: i64 = 0
        self.held_messages: i64 = 0
        #: Bytes of incomplete contents and of uncommitted transactions.
        self.assembling_bytes: i64 = 0
        #: Bytes of the delayed messages in memory; part of the held bytes.
        self.delayed_bytes: i64 = 0
        #: Bytes of stream messages that are in no chunk yet.
        self.unchunked_bytes: i64 = 0
        #: Memory that the waiting messages of one queue may fill; negative: no limit.
        self.window_bytes: i64 = -1
        #: The interval of checks of that limit, in messages (a power of 2, minus 1), and the size
        #: of pages.
        self.window_mask: i64 = 63
        self.page_bytes: i64 = CHUNK_BYTES_MAX
        #: True while messages use far more memory than allowed.
        self.overfull = False
        #: Messages retained after delivery; their bytes are part of the held bytes.
        self.retention: Final = RetentionShare()
        #: Messages that wait in memory for their retry; their bytes are part of the held bytes.
        self.retries: Final = RetentionShare()
        #: Unacked messages of all connections; part of the held bytes, except those of streams.
        self.unacked: Final = UnackedShare()
        #: Lists and dicts of unused objects, which a task frees.
        self._lists: list[list[Any]] = []
        self._tables: list[dict[Any, Any]] = []
        self._frees = False

    def hold(self, size: i64) -> None:
        """Add a message of `size` bytes that a queue takes into memory."""
        self.held_bytes += size
        self.held_messages += 1

    def release(self, size: i64) -> None:
        """Subtract a message of `size` bytes that a queue no longer holds."""
        self.held_bytes -= size
        self.held_messages -= 1
        self.count_freed(size)

    def count_freed(self, size: i64) -> None:
        """Count the cost of freeing a message if it is large."""
        if size >= LARGE_MESSAGE_BYTES:
            self._scheduler.spent += size // FREED_BYTES_PER_COST

    def hold_all(self, count: i64, size: i64) -> None:
        """Add `count` messages of `size` bytes together."""
        self.held_bytes += size
        self.held_messages += count

    def release_all(self, count: i64, size: i64) -> None:
        """Subtract `count` messages of `size` bytes together."""
        self.held_bytes -= size
        self.held_messages -= count

    def delay(self, size: i64) -> None:
        """Add a delayed message that is in memory."""
        self.hold(size)
        self.delayed_bytes += size

    def end_delay(self, count: i64, size: i64) -> None:
        """Subtract `count` delayed messages of `size` bytes together."""
        self.release_all(count, size)
        self.delayed_bytes -= size

    def begin_chunk(self, size: i64) -> None:
        """Add bytes of a stream that are in no chunk yet; `hold` adds the message itself."""
        self.unchunked_bytes += size

    def end_chunk(self, size: i64) -> None:
        """Subtract bytes that are in a chunk now, or that the stream has dropped."""
        self.unchunked_bytes -= size

    def assemble(self, size: i64) -> None:
        """Add bytes of an incomplete content or transaction."""
        self.assembling_bytes += size

    def end_assembly(self, size: i64) -> None:
        """Subtract bytes of a content or a transaction that has ended."""
        self.assembling_bytes -= size

    # -- freeing many objects ----------------------------------------------------------------------

    def free(self, items: list[Any]) -> None:
        """Free the objects in an unused list, in slices if there are many."""
        count: i64 = len(items)
        if count <= _FREED_AT_ONCE and self._end_to_free(items) == count:
            items.clear()
        else:
            self.free_later(items)

    def free_table(self, table: dict[Any, Any]) -> None:
        """Free the objects in an unused dict, in slices if there are many."""
        if len(table) <= _FREED_AT_ONCE:
            self._empty_some(table)
        self.free_table_later(table)

    def free_later(self, items: list[Any]) -> None:
        """Free the objects in a list in slices, for a caller that frees very many lists."""
        if items:
            self._lists.append(items)
            self._begin_freeing()

    def free_table_later(self, table: dict[Any, Any]) -> None:
        """Free the objects in a dict in slices, for a caller that frees very many dicts."""
        if table:
            self._tables.append(table)
            self._begin_freeing()

    def _begin_freeing(self) -> None:
        if not self._frees:
            self._frees = True
            self._scheduler.start_later(self._free_all())

    def _free_all(self) -> Iterator[int]:
        """Free unused objects in slices, because a million messages take a fifth of a second."""
        while self._lists or self._tables:
            if self._lists:
                items = self._lists[-1]
                left: i64 = i64(len(items)) - self._end_to_free(items)
                if left > 0:
                    del items[left:]
                else:
                    self._lists.pop()
            else:
                table = self._tables[-1]
                self._empty_some(table)
                if not table:
                    self._tables.pop()
            yield 1
        self._frees = False

    def _end_to_free(self, items: list[Any]) -> i64:
        """Return how many objects at the end of a list to free at once, and count the cost.

        The larger the messages (`Message` or `PlacedMessage`), the fewer.
        """
        most = min(i64(len(items)), _FREED_AT_ONCE)
        count: i64 = 0
        size: i64 = 0
        while count < most and size < _FREED_BYTES_AT_ONCE:
            count += 1
            size += _body_bytes(items[len(items) - count])
        self._count_freed(count, size)
        return count

    def _empty_some(self, table: dict[Any, Any]) -> None:
        """Free some objects of a dict, fewer if they are large messages."""
        count: i64 = 0
        size: i64 = 0
        while table and count < _FREED_AT_ONCE and size < _FREED_BYTES_AT_ONCE:
            count += 1
            size += _body_bytes(table.popitem()[1])
        self._count_freed(count, size)

    def _count_freed(self, count: i64, size: i64) -> None:
        self._scheduler.spent += count // MESSAGES_FREED_PER_COST + size // FREED_BYTES_PER_COST


def _body_bytes(item: Any) -> i64:
    """Return the bytes of the body that is freed with an object, if it has one."""
    if isinstance(item, Message):
        return len(item.body)
    if isinstance(item, PlacedMessage):
        return len(item.message.body)
    if isinstance(item, BodyBuffer):
        return item.taken()
    return 0
