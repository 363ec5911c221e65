"""The share of the memory for messages that queues and exchanges retain after delivery.

Queues may retain acked messages in memory, and exchanges their histories.  No client removes these
messages by consuming them, so all of them together are limited to a share of the memory.  While
they exceed it, each queue or exchange (a *keeper*) may use an equal part of it.  When a keeper adds
a message, two others are checked, in turn, and a keeper with more than its part drops its oldest
messages.  Beyond twice the share, a keeper that adds a message drops all its messages.

Invariant: the total is the sum of the bytes of all keepers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, trait

#: A keeper's part while the share is not exceeded.
_ANYTHING: Final = 1 << 62

#: The number of other keepers that are checked for each message added.
_LOOKED_AT: Final = 2


class RetentionShare:
    """The share of all keepers."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        #: The keepers that have messages, in any order, and the index of the last one checked.
        self.keepers: list[RetainedShare] = []
        self._place: i64 = 0
        #: The share; negative: no limit.
        self.bytes_max: i64 = -1

    def part(self) -> i64:
        """Return how many bytes one keeper may use now."""
        most = self.bytes_max
        if most < 0 or self.bytes <= most:
            return _ANYTHING
        return 0 if self.bytes > 2 * most else most // max(len(self.keepers), 1)

    def look(self) -> None:
        """While the share is exceeded, have some keepers drop messages beyond their part."""
        left: i64 = _LOOKED_AT
        while left > 0 and 0 <= self.bytes_max < self.bytes and self.keepers:
            left -= 1
            self._place = (self._place + 1) % len(self.keepers)
            keeper = self.keepers[self._place]
            if keeper.bytes > self.bytes_max // len(self.keepers):
                keeper.shrink()


@trait
class Shrinking:
    """A queue or an exchange that retains messages within a share."""

    @abstractmethod
    def shrink(self) -> None:
        """Drop some of the oldest messages while `RetainedShare.is_over`."""


@final
class RetainedShare:
    """The bytes of the messages that one queue or exchange retains."""

    def __init__(self, share: RetentionShare, of: Shrinking) -> None:
        self.bytes: i64 = 0
        #: None once the queue or exchange is deleted.
        self._of: Shrinking | None = of
        self._share: Final = share
        #: The index in the list of keepers; negative if not listed.
        self.place: i64 = -1

    def shrink(self) -> None:
        """Drop some of the oldest messages while `is_over`."""
        if self._of is not None:
            self._of.shrink()

    def end(self) -> None:
        """Release all bytes, because the queue or exchange is deleted."""
        self.book(-self.bytes)
        self._of = None

    def book(self, size: i64) -> None:
        """Add `size` bytes, or release them if `size` is negative."""
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
        """Return whether the keeper has more than its part."""
        return self.bytes > self._share.part()
