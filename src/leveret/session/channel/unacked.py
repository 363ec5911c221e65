"""The unacked deliveries of a channel, by delivery tag.

Tags grow, and most acks arrive in the order of the deliveries.  Deliveries are stored in blocks in
the order of their tags, and the first block has a moving head, which makes that case fast.  A
delivery acked out of order is found by bisection and removed from its block; a small block is
merged with its neighbour.  So no ack touches more than two blocks, however many there are, and no
settled delivery stays in memory.

Invariants: tags grow strictly from the head on, and there are no deliveries before it; `count` is
the number of deliveries; only a single block may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from leveret.broker.consumers.consumer import QueueConsumer, Source
    from leveret.message import Message

#: The number of deliveries in a full block.
_BLOCK: Final = 256

#: More than the bytes of all deliveries.
_BYTES_MAX: Final = 1 << 62

#: Blocks with fewer deliveries are merged with a neighbour.
_SMALL: Final = _BLOCK // 4

#: The outcome of a settled delivery.
ACK: Final = 0
REQUEUE: Final = 1
REJECT: Final = 2
#: A requeue that counts towards the delivery limit: by basic.reject, or because the channel ended.
RETRY: Final = 3


@final
@mypyc_attr(acyclic=True)
class Unacked:
    """One delivery: its tag, queue, consumer and message, and the delivery count before it."""

    def __init__(
        self,
        tag: i64,
        queue: Source,
        consumer: QueueConsumer | None,
        message: Message,
        sequence: i64,
        count: i64,
    ) -> None:
        self.tag: i64 = tag
        self.queue = queue
        self.consumer = consumer
        self.message = message
        self.sequence: i64 = sequence
        self.count: i64 = count


@final
class UnackedList:
    """The unacked deliveries of one channel."""

    def __init__(self) -> None:
        #: The block of the oldest deliveries; settled ones at its beginning are None.
        self._first: list[Unacked | None] = []
        self._head: i64 = 0
        self._last = self._first
        self._blocks = [self._first]
        self.count: i64 = 0

    def add(self, unacked: Unacked) -> None:
        """Add the newest delivery."""
        last = self._last
        if len(last) >= _BLOCK:
            last = []
            self._blocks.append(last)
            self._last = last
        last.append(unacked)
        self.count += 1

    def oldest(self) -> Unacked | None:
        """Return the oldest delivery, if any."""
        return self._first[self._head] if self._head < len(self._first) else None

    def from_tag(self, tag: i64, limit: i64) -> list[Unacked]:
        """Return at most `limit` deliveries from a tag on, oldest first."""
        found: list[Unacked] = []
        blocks = self._blocks
        number = self._block_of(tag)
        place = _place_of(blocks[number], tag)
        while number < len(blocks):
            block = blocks[number]
            while place < len(block):
                if len(found) >= limit:
                    return found
                unacked = block[place]
                if unacked is not None:
                    found.append(unacked)
                place += 1
            number += 1
            place = 0
        return found

    def take(self, tag: i64) -> Unacked | None:
        """Remove and return the delivery with `tag`, or return None."""
        if self.count == 0:
            return None
        first = self._first
        place = self._head
        unacked = first[place]
        if unacked is not None and unacked.tag == tag:
            self.count -= 1
            first[place] = None
            place += 1
            if place < len(first):
                self._head = place
            else:
                self._end_first()
            return unacked
        number = self._block_of(tag)
        block = self._blocks[number]
        place = _place_of(block, tag)
        unacked = block[place] if place < len(block) else None
        if unacked is None or unacked.tag != tag:
            return None
        del block[place]
        self.count -= 1
        if len(block) < _SMALL:
            self._merge(number)
        return unacked

    def has_up_to(self, tag: i64) -> bool:
        """Return whether there is a delivery up to `tag`."""
        oldest = self.oldest()
        return oldest is not None and oldest.tag <= tag

    def take_up_to(self, tag: i64, limit: i64, bytes_max: i64 = _BYTES_MAX) -> list[Unacked]:
        """Remove and return the deliveries up to `tag`, at most `limit`, oldest first.

        Stop after the delivery with which the total size reaches `bytes_max`.
        """
        taken: list[Unacked] = []
        room = bytes_max
        left: i64 = min(limit, self.count)
        while left > 0 and self._head < len(self._first):
            first = self._first
            place = self._head
            end: i64 = min(len(first), place + left)
            while place < end:
                unacked = first[place]
                if unacked is not None:
                    if unacked.tag > tag:
                        left = 0
                        break
                    taken.append(unacked)
                    first[place] = None
                    left -= 1
                    room -= unacked.message.size
                    if room <= 0:
                        left = 0
                        end = place + 1
                place += 1
            self._head = place
            if place == len(first):
                self._end_first()
        self.count -= len(taken)
        return taken

    def restore(self, returned: list[Unacked]) -> None:
        """Put back the deliveries settled in a transaction that was rolled back."""
        self._trim()
        blocks = self._blocks
        for unacked in returned:
            number = self._block_of(unacked.tag)
            block = blocks[number]
            block.insert(_place_of(block, unacked.tag), unacked)
            if len(block) > 2 * _BLOCK:
                blocks.insert(number + 1, block[_BLOCK:])
                del block[_BLOCK:]
        self._last = blocks[-1]
        self.count += len(returned)

    def _end_first(self) -> None:
        """Continue with the next block, because the first is used up."""
        self._head = 0
        if len(self._blocks) == 1:
            self._first.clear()
        else:
            del self._blocks[0]
            self._first = self._blocks[0]

    def _block_of(self, tag: i64) -> i64:
        """Return the index of the last block whose first tag is at most `tag`, or 0."""
        blocks = self._blocks
        low: i64 = 1
        high: i64 = len(blocks)
        while low < high:
            middle: i64 = (low + high) // 2
            unacked = blocks[middle][0]
            if unacked is None or unacked.tag <= tag:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _merge(self, number: i64) -> None:
        """Merge a block with a neighbour if both fit into one; drop it if it is empty."""
        if number <= 1:
            self._trim()
        # Try the previous one first, so that acking block by block in tag order leaves few blocks.
        if not self._join(number - 1):
            self._join(number)

    def _join(self, number: i64) -> bool:
        """Merge a block with the next if both exist and fit into one; return whether they did."""
        blocks = self._blocks
        if number < 0 or number + 1 >= len(blocks):
            return False
        block = blocks[number]
        next_one = blocks[number + 1]
        size: i64 = len(block) + len(next_one)
        if size > _BLOCK and size > max(len(block), len(next_one)):
            return False
        block.extend(next_one)
        del blocks[number + 1]
        self._last = blocks[-1]
        return True

    def _trim(self) -> None:
        """Remove the settled entries at the beginning of the first block."""
        if self._head > 0:
            del self._first[: self._head]
            self._head = 0


def _place_of(block: list[Unacked | None], tag: i64) -> i64:
    """Return the first index in a block whose delivery has a tag of at least `tag`."""
    low: i64 = 0
    high: i64 = len(block)
    while low < high:
        middle: i64 = (low + high) // 2
        unacked = block[middle]
        if unacked is None or unacked.tag < tag:
            low = middle + 1
        else:
            high = middle
    return low
