"""A sorted list of names, for exchanges with many destinations.

The names are stored in blocks of some hundred, so that an insert or a remove moves only the names
of one block.

Invariants: no block is empty; all names of a block sort before those of the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, final

from mypy_extensions import i64

#: A larger block is split in two.  A million names take one or two thousand blocks.
_BLOCK_MAX: Final = 1024

#: The kind of the named object, and the name.
Key = tuple[bool, str]


@final
class OrderedNames:
    """Distinct names in order; `size` is their number."""

    def __init__(self) -> None:
        self.size: i64 = 0
        self.blocks: list[list[Key]] = []

    def insert(self, key: Key) -> None:
        """Add a new name."""
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
        """Remove an existing name."""
        self.size -= 1
        place = self._block(key)
        block = self.blocks[place]
        del block[bisect_left(block, key)]
        if not block:
            del self.blocks[place]

    def at(self, number: int) -> Key:
        """Return the name at index `number`.  Raises: IndexError."""
        left: i64 = number
        for block in self.blocks:
            if left < len(block):
                return block[left]
            left -= len(block)
        raise IndexError(number)

    def _block(self, key: Key) -> int:
        """Return the index of the first block that does not end before `key`."""
        blocks = self.blocks
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high) // 2
            if blocks[middle][-1] < key:
                low = middle + 1
            else:
                high = middle
        return low
