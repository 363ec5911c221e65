"""How messages that came back leave the memory: they become pages again, at their old places.

`FifoPages.evict` moves what waits to the disk.  New messages lie in order; those that were requeued
lie in `Returns`, in any order, and may belong between others.  Here runs of them are cut into pages
that lie before, between or behind the pages that are there.  How often each came back is kept by
the pages, for no chunk may say it.

A run ends where a message is missing that may come back (one that is unacked, for example), where a
page is, and where more than a few sequences are gone.  A short run stays in memory, since a page
takes as much as it.

Invariants: the front is empty while runs become pages; a page that is made here overlaps no other.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, place_of
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import Returned, Returns, Window, sequence_of

#: Returned messages that become pages in one call: a few ms.
FOLD_MESSAGES: Final = 2048

#: A run of fewer messages that is a smaller part of a page stays in memory.
_RUN_MESSAGES: Final = 32
_RUN_PART: Final = 8

#: Sequences that are gone within a run.
_GAP_MAX: Final = 64


def lowest(returns: Returns) -> list[Returned]:
    """Take out the returned messages that are next, as many as one call folds."""
    found: list[Returned] = []
    while len(found) < FOLD_MESSAGES and returns.count() > 0:
        sequence = returns.first()
        item = returns.remove(sequence)
        assert item is not None
        found.append(item)
    return found


def within(returns: Returns, window: Window) -> list[Returned]:
    """Take out what came back and belongs among the messages of a window."""
    found: list[Returned] = []
    sequence: i64 = window.head_sequence
    while sequence < window.next_sequence and returns.count() > 0:
        item = returns.at(sequence)
        if item is not None:
            found.append(item)
        sequence += 1
    for item in found:
        returns.remove(item.sequence)
    return found


class Runs:
    """The runs of some messages of one queue."""

    def __init__(
        self, owner: BacklogOwner, stored: StoredChunks, pages: list[Page], page_bytes: i64
    ) -> None:
        self._owner: Final = owner
        self._page_bytes: Final[i64] = page_bytes
        self._stored: Final = stored
        #: The pages that are there, in their order.
        self._pages: Final = pages
        self._strict: Final = owner.gaps_return()
        #: The messages that no page takes.
        self.rest: list[Returned] = []

    def cut(self, items: list[Returned]) -> list[list[Returned]]:
        """Return the runs among `items`; the others are `rest`."""
        runs: list[list[Returned]] = []
        run: list[Returned] = []
        size: i64 = 0
        items = sorted(items, key=sequence_of)
        place: i64 = place_of(self._pages, items[0].sequence) if items else 0
        for item in items:
            before = place
            while place < len(self._pages) and self._pages[place].last < item.sequence:
                place += 1
            if run and (place != before or not self._follows(run[-1].sequence, item.sequence)):
                self._end(run, size, runs)
                run = []
                size = 0
            if self._may_not(item, place):
                self.rest.append(item)
                continue
            run.append(item)
            size += item.message.size
        self._end(run, size, runs)
        return runs

    def _end(self, run: list[Returned], size: i64, runs: list[list[Returned]]) -> None:
        if len(run) >= _RUN_MESSAGES or size * _RUN_PART >= self._page_bytes:
            runs.append(run)
        else:
            self.rest += run

    def _may_not(self, item: Returned, place: i64) -> bool:
        """Return whether a message lies in the range of a page, or only in memory for good."""
        if place < len(self._pages) and self._pages[place].first <= item.sequence:
            return True
        stored = self._stored.find(item.sequence)
        if stored is None:
            return False
        lacks = not (item.message.persistent or stored.whole)
        return lacks or self._stored.gone.has(item.sequence)

    def _follows(self, before: i64, sequence: i64) -> bool:
        """Return whether all between two messages has gone for good."""
        gap = sequence - before - 1
        if gap == 0:
            return True
        if self._strict or gap > _GAP_MAX:
            return False
        between: i64 = before + 1
        while between < sequence:
            if self._owner.is_out(between):
                return False
            between += 1
        return True
