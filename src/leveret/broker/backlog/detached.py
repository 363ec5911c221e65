"""The messages removed from a queue all at once, because it is purged or deleted.

The queue forgets any number of them at once.  A task (`queue.purge`) does the remaining work for
each message: it acks the message in the journal, removes it from its chunk and frees its memory.
For a deleted queue, only memory and the files of its chunks remain to be freed.
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
    """The messages that were waiting in a queue."""

    def __init__(self) -> None:
        #: The messages in memory: new messages in windows, requeued messages, and all messages of a
        #: priority queue.
        self.windows: Final[list[Window]] = []
        self.returns: Returns | None = None
        self.at: MessageTable | None = None
        #: Pages, some of them loaded into memory.
        self.pages: list[Page] = []
        #: Other lists that refer to the messages.
        self.lists: Final[list[list[Any]]] = []

    def free(self, core: Core) -> None:
        """Free the memory.  A later task frees the large parts."""
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
