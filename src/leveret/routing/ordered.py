"""Names in their order, of which the n-th can be asked for: an index of many destinations.

They lie in blocks of some hundred, so that one more or one less moves the names of one block.

Invariants: no block is empty; all names of a block come before those of the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, final

from mypy_extensions import i64

#: A block of so many names becomes two.  A million names are a thousand blocks or two.
_BLOCK_MAX: Final = 1024

#: A name, and what kind of thing it names.
Key = tuple[bool, str]


@final
class OrderedNames:
    """Different names in order; `size` says how many."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.blocks: list[list[Key]] = []

    def insert(self, key: Key) -> None:
        """Add a name that is not there."""
        self.size += 1
        blocks = self.blocks
        if not blocks:
            blocks.append([key])
            return
        place = min(self._block(key), len(blocks) - 1)
        block = blocks[place]
        insort(block, key)
        if len(block) > _BLOCK_MAX:
            half = len(block) // 2
            blocks.insert(place + 1, block[half:])
            del block[half:]

    def remove(self, key: Key) -> None:
        """Take out a name that is there."""
        self.size -= 1
        place = self._block(key)
        block = self.blocks[place]
        del block[bisect_left(block, key)]
        if not block:
            del self.blocks[place]

    def at(self, number: int) -> Key:
        """Return the name that `number` others come before; there must be as many."""
        left: i64 = number
        for block in self.blocks:
            if left < len(block):
                return block[left]
            left -= len(block)
        raise IndexError(number)

    def _block(self, key: Key) -> int:
        """Return the place of the first block that does not end before `key`."""
        blocks = self.blocks
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high) // 2
            if blocks[middle][-1] < key:
                low = middle + 1
            else:
                high = middle
        return low
