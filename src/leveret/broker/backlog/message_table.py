"""A table of messages by sequence, for very large numbers of messages.

When a dict of 350,000 entries grows, it moves all of them, which takes 30 ms; a million take 75 ms.
So the messages are in blocks of a few consecutive sequences.  Most messages are added and removed
in the order of their sequences, in the block used last.

Invariant: an empty block is in the table only if it is the block last written to.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.scheduler.scheduler import Scheduler
from leveret.large_dict import LargeDict

#: The number of sequences in a block, in bits.  A single message in a block takes some 250 bytes
#: more than in a dict; adjacent messages take 100 bytes less each.
_BLOCK_BITS: Final[i64] = 4
_BLOCK_MASK: Final[i64] = 15


@final
class MessageTableBlock:
    """The messages of some consecutive sequences."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.items: list[RequeuedMessage | None] = [None] * (int(_BLOCK_MASK) + 1)
        self.count: i64 = 0


@final
class MessageTable:
    """Messages by their sequences."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._blocks: LargeDict[int, MessageTableBlock] = LargeDict()
        #: The block last written to, and the block last read.
        self._put = MessageTableBlock(-1)
        self._found = self._put

    def put(self, item: RequeuedMessage) -> None:
        """Add a message; replace one with the same sequence."""
        sequence = item.sequence
        block = self._put
        if block.number != sequence >> _BLOCK_BITS:
            block = self._begin(sequence >> _BLOCK_BITS)
        place = sequence & _BLOCK_MASK
        if block.items[place] is None:
            block.count += 1
            self.count += 1
        block.items[place] = item

    def get(self, sequence: i64) -> RequeuedMessage | None:
        """Return the message of a sequence, or None."""
        block = self._found
        if block.number != sequence >> _BLOCK_BITS:
            found = self._find(sequence >> _BLOCK_BITS)
            if found is None:
                return None
            block = self._found = found
        return block.items[sequence & _BLOCK_MASK]

    def has(self, sequence: i64) -> bool:
        """Return whether the table has a message with this sequence."""
        return self.count > 0 and self.get(sequence) is not None

    def pop(self, sequence: i64) -> RequeuedMessage | None:
        """Remove and return the message of a sequence, or return None."""
        item = self.get(sequence)
        if item is not None:
            block = self._found
            block.items[sequence & _BLOCK_MASK] = None
            block.count -= 1
            self.count -= 1
            if block.count == 0 and block is not self._put:
                self._end(block)
        return item

    def values(self) -> list[RequeuedMessage]:
        """Return all messages, in any order."""
        return [item for item in self.places() if item is not None]

    def places(self) -> list[RequeuedMessage | None]:
        """Return all messages in any order, with None between them, as the cheapest copy."""
        return [item for block in self.blocks() for item in block.items]

    def within(self, first: i64, last: i64) -> list[RequeuedMessage]:
        """Return the messages with sequences from `first` to `last`, in any order."""
        begin = first >> _BLOCK_BITS
        end = last >> _BLOCK_BITS
        if end - begin < len(self._blocks):
            blocks = [self._find(number) for number in range(begin, end + 1)]
        else:
            blocks = [*self.blocks()]
        return [
            item
            for block in blocks
            if block is not None
            for item in block.items
            if item is not None and first <= item.sequence <= last
        ]

    def blocks(self) -> list[MessageTableBlock]:
        """Return all blocks, in any order."""
        return self._blocks.values()

    def free(self, scheduler: Scheduler) -> None:
        """Free all messages.  A later task frees large numbers of them."""
        blocks = self.blocks()
        scheduler.spent += len(blocks) >> 4
        for block in blocks:
            scheduler.memory.free_later(block.items)
        self._blocks = LargeDict()
        self._put = MessageTableBlock(-1)
        self._found = self._put
        self.count = 0

    def _find(self, number: i64) -> MessageTableBlock | None:
        """Return the block with a number, or None."""
        return self._blocks.get(int(number))

    def _begin(self, number: i64) -> MessageTableBlock:
        """Return the block with a number, creating it if needed, and make it the one written to."""
        before = self._put
        block = self._find(number)
        if block is None:
            block = MessageTableBlock(number)
            self._blocks[int(number)] = block
        self._put = block
        if before.count == 0 and before.number >= 0:
            self._end(before)
        return block

    def _end(self, block: MessageTableBlock) -> None:
        """Remove an empty block."""
        del self._blocks[int(block.number)]
        if self._found is block:
            # Another block may use the number later.
            self._found = self._put
