"""What queues and exchanges keep of messages that everybody has had: one share of the memory.

Acked messages that a queue retains, and the histories of exchanges, lie in memory, and nobody has
to take them out of it.  So all together have a share.  While they exceed it, each has an equal part
of it: who keeps one more message has two others looked at, in their turn, and whoever has more than
his part drops his oldest.  Beyond twice the share who keeps one more drops all that he has.

Invariant: the total is the sum of what all keepers have booked.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, trait

#: What a keeper may have where the share is not reached.
_ANYTHING: Final = 1 << 62

#: Others that are looked at for each message that is kept.
_LOOKED_AT: Final = 2


class RetentionShare:
    """The share of all keepers."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        #: Those that keep anything, in any order, and the place of the one looked at last.
        self.keepers: list[Keeper] = []
        self._place: i64 = 0
        #: The share; below 0 there is no limit.
        self.bytes_max: i64 = -1

    def part(self) -> i64:
        """Return what one keeper may have now."""
        most = self.bytes_max
        if most < 0 or self.bytes <= most:
            return _ANYTHING
        return 0 if self.bytes > 2 * most else most // max(len(self.keepers), 1)

    def look(self) -> None:
        """Have some keepers drop what they have beyond their part, while the share is exceeded."""
        left: i64 = _LOOKED_AT
        while left > 0 and 0 <= self.bytes_max < self.bytes and self.keepers:
            left -= 1
            self._place = (self._place + 1) % len(self.keepers)
            keeper = self.keepers[self._place]
            if keeper.bytes > self.bytes_max // len(self.keepers):
                keeper.shrink()


@trait
class Shrinking:
    """Something that keeps messages within a share."""

    @abstractmethod
    def shrink(self) -> None:
        """Drop some of the oldest that are beyond `Keeper.is_over`."""


@final
class Keeper:
    """What one queue or exchange keeps, in bytes; `of` has the messages."""

    def __init__(self, share: RetentionShare, of: Shrinking) -> None:
        self.bytes: i64 = 0
        #: None once it is deleted.
        self._of: Shrinking | None = of
        self._share: Final = share
        #: Its place among the keepers, if it is one.
        self.place: i64 = -1

    def shrink(self) -> None:
        """Drop some of the oldest that are beyond `is_over`."""
        if self._of is not None:
            self._of.shrink()

    def end(self) -> None:
        """Keep nothing any more: the queue or exchange is deleted."""
        self.book(-self.bytes)
        self._of = None

    def book(self, size: i64) -> None:
        """Book `size` bytes; a negative size books out."""
        share = self._share
        self.bytes += size
        share.bytes += size
        if self.bytes > 0 and self.place < 0:
            self.place = len(share.keepers)
            share.keepers.append(self)
        elif self.bytes == 0 and self.place >= 0:
            last = share.keepers.pop()
            if last is not self:
                share.keepers[self.place] = last
                last.place = self.place
            self.place = -1
        if size > 0:
            share.look()

    def is_over(self) -> bool:
        """Return whether it has more than it may."""
        return self.bytes > self._share.part()
