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
from leveret.broker.backlog.window import Returned, Returns, Window

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


def runs_of(owner: BacklogOwner, pages: list[Page], items: list[Returned]) -> list[list[Returned]]:
    """Return messages, which are in order and lie in no page, as runs."""
    strict = owner.gaps_return()
    runs: list[list[Returned]] = []
    before: i64 = -1
    for item in items:
        place = place_of(pages, item.sequence)
        if place != before or not _follows(owner, strict, runs[-1][-1].sequence, item.sequence):
            runs.append([])
        runs[-1].append(item)
        before = place
    return runs


def is_worth_a_page(run: list[Returned], page_bytes: i64) -> bool:
    """Return whether a run is long enough for a page of its own."""
    size: i64 = 0
    for item in run:
        size += item.message.size
    return len(run) >= _RUN_MESSAGES or size * _RUN_PART >= page_bytes


def may_lie_in_page(item: Returned, pages: list[Page], stored: StoredChunks) -> bool:
    """Return whether a message lies in the range of no page, and not only in memory for good."""
    place = place_of(pages, item.sequence)
    if place < len(pages) and pages[place].first <= item.sequence:
        return False
    chunk = stored.find(item.sequence)
    if chunk is None:
        return True
    return (item.message.persistent or chunk.whole) and not stored.gone.has(item.sequence)


def _follows(owner: BacklogOwner, strict: bool, before: i64, sequence: i64) -> bool:
    """Return whether all between two messages has gone for good."""
    gap = sequence - before - 1
    if gap > 0 and (strict or gap > _GAP_MAX):
        return False
    return gap == 0 or not owner.out_within(before + 1, sequence - 1)
