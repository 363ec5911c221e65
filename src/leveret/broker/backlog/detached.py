"""The messages that leave a queue all at once, because it is purged or deleted.

The queue forgets them at once, however many they are.  A task (`queue.purge`) does the
remaining work for each message: its ack in the journal, its place in a chunk, its memory.  For a
deleted queue, only the memory and the files of its chunks remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, final

from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.page import Page
from leveret.broker.backlog.window import Returns, Window
from leveret.broker.core import Core


@final
class Detached:
    """The messages that waited in a queue."""

    def __init__(self) -> None:
        #: The messages in memory: new ones in windows, requeued ones, and all of a priority
        #: queue's.
        self.windows: Final[list[Window]] = []
        self.returns: Returns | None = None
        self.at: MessageTable | None = None
        #: Pages, some of them also in memory.
        self.pages: list[Page] = []
        #: Other lists that refer to the messages.
        self.lists: Final[list[list[Any]]] = []

    def free(self, core: Core) -> None:
        """Free the memory; a later task frees the large parts."""
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
