"""The messages that leave a queue all at once, because it is purged or deleted.

The queue forgets them at once, however many they are.  What remains to be done for each of them
(its ack in the journal, its place in a chunk, its memory) is done by a task (`classic.purging`); of
a deleted queue only the memory remains, and the files that its chunks are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.window import Returns, Window
from leveret.broker.core.core import Core


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
        self.lists: Final[list[list[Any]]] = []

    def free(self, core: Core) -> None:
        """Let go of the memory, in later turns where it is much."""
        core.scheduler.start(self._free_pages(core))
        for window in self.windows:
            core.memory.free(window.items)
        returns = self.returns
        if returns is not None:
            for block in returns.blocks():
                core.memory.free_table_later(block.messages)
        if self.at is not None:
            self.at.free(core.scheduler)
        for items in self.lists:
            core.memory.free(items)

    def _free_pages(self, core: Core) -> Iterator[int]:
        pages = self.pages
        while pages:
            page = pages.pop()
            window = page.window
            if window is not None:
                page.window = None
                core.memory.free(window.items)
            yield 1
