"""Messages by their sequences, of which there may be very many.

A dict of 350,000 entries that grows by one more moves them all, in 30 ms; one of a million in 75.
So the messages lie in blocks of a few sequences that follow each other.  Most of them come, and
leave, in the order of their sequences: the block is then the one that was used last.

Invariant: a block that is empty is in the table only while it is the one that was put into last.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.window import Returned
from leveret.broker.scheduler.scheduler import Scheduler
from leveret.large_dict import LargeDict

#: Sequences of a block, as a number of bits.  A message that is left alone in its block takes some
#: 250 bytes more than one in a dict; those that lie close together take 100 bytes less.
_BLOCK_BITS: Final[i64] = 4
_BLOCK_MASK: Final[i64] = 15


@final
class Block:
    """The messages of some sequences that follow each other."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.items: list[Returned | None] = [None] * (int(_BLOCK_MASK) + 1)
        self.count: i64 = 0


@final
class MessageTable:
    """Messages by their sequences."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._blocks: LargeDict[int, Block] = LargeDict()
        #: The block that was put into last, and the one that was looked into last.
        self._put = Block(-1)
        self._found = self._put

    def put(self, item: Returned) -> None:
        """Add a message, in place of one with the same sequence."""
        sequence = item.sequence
        block = self._put
        if block.number != sequence >> _BLOCK_BITS:
            block = self._begin(sequence >> _BLOCK_BITS)
        place = sequence & _BLOCK_MASK
        if block.items[place] is None:
            block.count += 1
            self.count += 1
        block.items[place] = item

    def get(self, sequence: i64) -> Returned | None:
        """Return the message of a sequence, or None."""
        block = self._found
        if block.number != sequence >> _BLOCK_BITS:
            found = self._find(sequence >> _BLOCK_BITS)
            if found is None:
                return None
            block = self._found = found
        return block.items[sequence & _BLOCK_MASK]

    def has(self, sequence: i64) -> bool:
        """Return whether there is a message of a sequence."""
        return self.count > 0 and self.get(sequence) is not None

    def pop(self, sequence: i64) -> Returned | None:
        """Return the message of a sequence and take it out; None where there is none."""
        item = self.get(sequence)
        if item is not None:
            block = self._found
            block.items[sequence & _BLOCK_MASK] = None
            block.count -= 1
            self.count -= 1
            if block.count == 0 and block is not self._put:
                self._end(block)
        return item

    def values(self) -> list[Returned]:
        """Return all messages, in no order."""
        return [item for item in self.places() if item is not None]

    def places(self) -> list[Returned | None]:
        """Return all messages in no order, and None in between: so a copy takes the least."""
        return [item for block in self.blocks() for item in block.items]

    def within(self, first: i64, last: i64) -> list[Returned]:
        """Return the messages whose sequences are from `first` to `last`, in no order."""
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

    def blocks(self) -> list[Block]:
        """Return all blocks, in no order."""
        return self._blocks.values()

    def free(self, scheduler: Scheduler) -> None:
        """Let go of all messages, in later turns where there are many."""
        blocks = self.blocks()
        scheduler.spent += len(blocks) >> 4
        for block in blocks:
            scheduler.memory.free_later(block.items)
        self._blocks = LargeDict()
        self._put = Block(-1)
        self._found = self._put
        self.count = 0

    def _find(self, number: i64) -> Block | None:
        """Return the block of a number, if there is one."""
        return self._blocks.get(int(number))

    def _begin(self, number: i64) -> Block:
        """Have a block put into from now on."""
        before = self._put
        block = self._find(number)
        if block is None:
            block = Block(number)
            self._blocks[int(number)] = block
        self._put = block
        if before.count == 0 and before.number >= 0:
            self._end(before)
        return block

    def _end(self, block: Block) -> None:
        """Take out a block that is empty."""
        del self._blocks[int(block.number)]
        if self._found is block:
            # It may come again, as another block.
            self._found = self._put
