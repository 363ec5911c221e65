"""What is left to do for messages that were purged, slice after slice.

They are no longer in their queue.  The journal still has them, and chunks on the disk: each is
acked, and forgotten there.  A crash between two slices brings back those that were not yet acked,
as if the purge had come to these later.

Invariant: nothing here touches what came into the queue after the purge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.detached import Detached
from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.window import TAKEN, Returned, Window
from leveret.broker.scheduler.task import Work

if TYPE_CHECKING:
    from leveret.broker.backlog.pages import Pages
    from leveret.broker.classic.chunked import ChunkedQueue
    from leveret.broker.values.deduplication import QueuedKeys

#: Messages that are acked between two looks at the steps that are left.
_ACKED_AT_ONCE: Final = 512


@final
class Purging(Work):
    """Acks the messages that left a queue by a purge, and forgets their chunks."""

    def __init__(self, queue: ChunkedQueue, detached: Detached, pages: Pages | None) -> None:
        """`pages` are those of the queue, which know how to forget what is on the disk."""
        self._queue: Final = queue
        self._turn: Final = queue.turn
        self._detached: Final = detached
        self._pages: Final = pages
        #: Windows that are not done, the next one last, and a place in it.
        self._windows: Final = detached.windows[::-1]
        self._place: i64 = 0
        #: The blocks of what had come back that are not done, and what is left of the last of them.
        returns = detached.returns
        self._blocks: Final = returns.blocks() if returns is not None else []
        self._sequences: list[i64] = []
        #: The blocks of what waited in memory of a queue with priorities, that are not done.
        at = detached.at
        self._items: Final = at.blocks() if at is not None else []
        #: A place among the pages.
        self._page: i64 = 0
        #: Keys of messages in the queue that may be forgotten, and the messages that are out.
        self._keys: QueuedKeys | None = None
        self._listed: list[bytes] = []
        self._end: i64 = 0
        self._out = MessageTable()
        #: Messages that had come back and waited for their retry.
        self._parked: dict[i64, Returned] = {}
        self.over = False

    def forget_keys(self, keys: QueuedKeys, out: MessageTable) -> None:
        """Forget the keys of the messages too, but not those of unacked ones, as `out` has them.

        Those of messages that come later stay.
        """
        self._keys = keys
        self._listed = list(keys.sequences)
        self._end = self._queue.next_number()
        self._out = out
        self._turn.steps += len(self._listed) >> 6

    def forget_parked(self, parked: dict[i64, Returned], out: MessageTable) -> None:
        """Ack messages too that are in `out` of the queue, and in no consumer's hands."""
        self._parked = parked
        self._out = out

    def step(self, steps: i64) -> bool:
        """Ack some of them."""
        turn = self._turn
        turn.changes += 1
        last = turn.steps + steps
        if self._queue.deleted:
            # The record of its end stands for all that was in it.
            return False
        if self._ack_parked(last) or self._forget_some_keys(last):
            return True
        if not self._queue.recorded and self._queue.stored.through == 0:
            return False
        return (
            self._ack_windows(last)
            or self._ack_returns(last)
            or self._ack_items(last)
            or self._ack_pages(last)
        )

    def _forget_some_keys(self, last: i64) -> bool:
        keys = self._keys
        if keys is None:
            return False
        listed = self._listed
        while listed:
            if self._turn.steps >= last:
                return True
            self._turn.steps += 1
            key = listed.pop()
            number = keys.sequences.get(key)
            if number is None or number >= self._end:
                continue
            sequence: i64 = number
            if not self._out.has(sequence) and number not in keys.handed:
                keys.forget(key)
        return False

    def _ack(self, first: i64, last: i64) -> None:
        """Forget messages with sequences that follow each other."""
        queue = self._queue
        if queue.recorded:
            # Those that were never journaled are unknown there, and do no harm.
            self._turn.journal.ack(queue.queue_id, first, last)
        stored = queue.stored
        while first <= last and first <= stored.through:
            stored.forget(first)
            first += 1

    def _ack_parked(self, last: i64) -> bool:
        parked = self._parked
        out = self._out
        while parked:
            if self._turn.steps >= last:
                return True
            self._turn.steps += 1
            sequence: i64 = parked.popitem()[0]
            out.pop(sequence)
            self._ack(sequence, sequence)
        return False

    def _ack_windows(self, last: i64) -> bool:
        while self._windows:
            if self._turn.steps >= last:
                return True
            if not self._ack_some(self._windows[-1]):
                self._windows.pop()
                self._place = 0
        return False

    def _ack_some(self, window: Window) -> bool:
        """Ack the next messages of a window; return whether some are left."""
        items = window.items
        size: i64 = len(items)
        place: i64 = max(self._place, window.head)
        end: i64 = min(place + _ACKED_AT_ONCE, size)
        self._turn.steps += end - place
        base: i64 = window.head_sequence - window.head
        first: i64 = place
        while place < end:
            if items[place] is TAKEN:
                if first < place:
                    self._ack(base + first, base + place - 1)
                first = place + 1
            place += 1
        if first < end:
            self._ack(base + first, base + end - 1)
        self._place = end
        return end < size

    def _ack_returns(self, last: i64) -> bool:
        while self._blocks or self._sequences:
            if self._turn.steps >= last:
                return True
            if not self._sequences:
                self._sequences = list(self._blocks.pop().messages)
            self._turn.steps += 1
            sequence = self._sequences.pop()
            self._ack(sequence, sequence)
        return False

    def _ack_items(self, last: i64) -> bool:
        while self._items:
            if self._turn.steps >= last:
                return True
            for item in self._items.pop().items:
                if item is not None:
                    self._turn.steps += 1
                    self._ack(item.sequence, item.sequence)
        return False

    def _ack_pages(self, last: i64) -> bool:
        pages = self._detached.pages
        while self._page < len(pages):
            if self._turn.steps >= last:
                return True
            page = pages[self._page]
            window = page.window
            if window is not None:
                if self._ack_some(window):
                    continue
                self._place = 0
            elif self._pages is not None:
                self._pages.let_go_of(page)
            self._page += 1
        return False

    def ended(self) -> None:
        """Let go of the memory."""
        self.over = True
        self._turn.free_table(self._parked)
        self._detached.free(self._turn)
