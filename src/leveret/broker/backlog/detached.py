"""The messages that leave a queue all at once, because it is purged or deleted.

The queue forgets them in one step, however many they are.  What remains to be done for each of them
(its ack in the journal, its place in a chunk, its memory) is done in slices by `Purging`; of a
deleted queue only the memory remains, and the files that its chunks are in.
"""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.stored import StoredChunk, forget_chunk
from leveret.broker.backlog.window import Returns, Window
from leveret.broker.core.work import WorkAccount
from leveret.broker.scheduler.task import Work
from leveret.store.segments.spill import Spill

#: Steps in which pages and chunks are let go at once; more of them are in slices.
FREED_AT_ONCE: Final = 512


@final
class Detached:
    """What waited in a queue."""

    def __init__(self) -> None:
        #: What lay in memory: new messages in windows, what had come back, and all of a queue with
        #: priorities.
        self.windows: Final[list[Window]] = []
        self.returns: Returns | None = None
        self.at: MessageTable | None = None
        #: Pages, some of them in memory too.
        self.pages: list[Page] = []
        #: What else refers to them.
        self._lists: Final[list[list[Any]]] = []
        self._tables: Final[list[dict[Any, Any]]] = []

    def add_window(self, window: Window) -> None:
        """Add the messages of a window, which nobody else uses any more."""
        if window.items:
            self.windows.append(window)

    def add_list(self, items: list[Any]) -> None:
        """Add a list that is let go with them."""
        if items:
            self._lists.append(items)

    def add_table(self, table: dict[Any, Any]) -> None:
        """Add a dict that is let go with them."""
        if table:
            self._tables.append(table)

    def free(self, account: WorkAccount) -> None:
        """Let go of the memory, in slices where it is much."""
        account.begin(PagesFreeing(account, self.pages), FREED_AT_ONCE)
        for window in self.windows:
            account.free(window.items)
        returns = self.returns
        if returns is not None:
            for block in returns.blocks():
                account.free_later(block.heap)
                account.free_table_later(block.messages)
        if self.at is not None:
            self.at.free(account)
        for items in self._lists:
            account.free(items)
        for table in self._tables:
            account.free_table(table)


@final
class PagesFreeing(Work):
    """Lets go of pages that nobody uses any more, slice after slice."""

    def __init__(self, account: WorkAccount, pages: list[Page]) -> None:
        self._account: Final = account
        self._pages: Final = pages

    def step(self, steps: i64) -> bool:
        """Let go of some of them."""
        account = self._account
        pages = self._pages
        last = account.steps + steps
        while pages:
            if account.steps >= last:
                return True
            account.steps += 1
            page = pages.pop()
            window = page.window
            if window is not None:
                page.window = None
                account.free(window.items)
        return False

    def ended(self) -> None:
        """Do nothing: nobody waits for it."""


@final
class ChunksFreeing(Work):
    """Counts the chunks of a deleted queue as gone from their files, slice after slice."""

    def __init__(self, account: WorkAccount, spill: Spill, blocks: list[list[StoredChunk]]) -> None:
        self._account: Final = account
        self._spill: Final = spill
        self._blocks: Final = blocks

    def step(self, steps: i64) -> bool:
        """Let go of some of them."""
        account = self._account
        blocks = self._blocks
        last = account.steps + steps
        while blocks:
            if account.steps >= last:
                return True
            account.steps += 1
            block = blocks[-1]
            forget_chunk(self._spill, block.pop())
            if not block:
                blocks.pop()
        return False

    def ended(self) -> None:
        """Do nothing: nobody waits for it."""
