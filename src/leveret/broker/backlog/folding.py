"""Moving requeued messages from memory to disk, as pages at their old places.

`FifoPages.evict` moves waiting messages to disk.  New messages are in order.  Requeued messages are
in `Returns`, in any order, and may belong between others.  Runs of them are cut into pages before,
between or behind the existing pages.  `Pages.counts` has each message's number of returns, because
a chunk cannot contain it.

A run ends at a missing message that may return (an unacked message, for example), at a page, and at
a gap of more than a few sequences.  A short run stays in memory, because a page would take as much.

Invariants: the front is empty while runs become pages; a new page overlaps no other.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.backlog.owner import BacklogOwner
from leveret.broker.backlog.page import Page, place_of
from leveret.broker.backlog.stored import StoredChunks
from leveret.broker.backlog.window import RequeuedMessage, Returns, Window

#: The maximum number of requeued messages turned into pages in one call, which takes a few ms.
FOLD_MESSAGES: Final = 2048

#: A run with fewer messages and a smaller part of a page than this stays in memory.
_RUN_MESSAGES: Final = 32
_RUN_PART: Final = 8

#: The maximum number of missing sequences in a row within a run.
_GAP_MAX: Final = 64


def lowest(returns: Returns) -> list[RequeuedMessage]:
    """Remove and return the next requeued messages, at most FOLD_MESSAGES."""
    found: list[RequeuedMessage] = []
    while len(found) < FOLD_MESSAGES and returns.count() > 0:
        sequence = returns.first()
        item = returns.remove(sequence)
        assert item is not None
        found.append(item)
    return found


def within(returns: Returns, window: Window) -> list[RequeuedMessage]:
    """Remove and return the requeued messages within the range of a window."""
    found: list[RequeuedMessage] = []
    sequence: i64 = window.head_sequence
    while sequence < window.next_sequence and returns.count() > 0:
        item = returns.at(sequence)
        if item is not None:
            found.append(item)
        sequence += 1
    for item in found:
        returns.remove(item.sequence)
    return found


def runs_of(
    owner: BacklogOwner, pages: list[Page], items: list[RequeuedMessage]
) -> list[list[RequeuedMessage]]:
    """Divide messages, which are in order and in no page, into runs."""
    strict = owner.gaps_return()
    runs: list[list[RequeuedMessage]] = []
    before: i64 = -1
    for item in items:
        place = place_of(pages, item.sequence)
        if place != before or not _follows(owner, strict, runs[-1][-1].sequence, item.sequence):
            runs.append([])
        runs[-1].append(item)
        before = place
    return runs


def is_worth_a_page(run: list[RequeuedMessage], page_bytes: i64) -> bool:
    """Return whether a run is long enough for a page of its own."""
    size: i64 = 0
    for item in run:
        size += item.message.size
    return len(run) >= _RUN_MESSAGES or size * _RUN_PART >= page_bytes


def may_lie_in_page(item: RequeuedMessage, pages: list[Page], stored: StoredChunks) -> bool:
    """Return whether a message is outside all pages and need not stay in memory."""
    place = place_of(pages, item.sequence)
    if place < len(pages) and pages[place].first <= item.sequence:
        return False
    chunk = stored.find(item.sequence)
    if chunk is None:
        return True
    return (item.message.persistent or chunk.whole) and not stored.gone.has(item.sequence)


def _follows(owner: BacklogOwner, strict: bool, before: i64, sequence: i64) -> bool:
    """Return whether all messages between two others are gone for good."""
    gap = sequence - before - 1
    if gap > 0 and (strict or gap > _GAP_MAX):
        return False
    return gap == 0 or not owner.out_within(before + 1, sequence - 1)
