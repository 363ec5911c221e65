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
from leveret.broker.core.turn import Turn


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
        self.tables: Final[list[dict[Any, Any]]] = []

    def free(self, turn: Turn) -> None:
        """Let go of the memory, in later turns where it is much."""
        turn.start(self._free_pages(turn))
        for window in self.windows:
            turn.free(window.items)
        returns = self.returns
        if returns is not None:
            for block in returns.blocks():
                turn.free_later(block.heap)
                turn.free_table_later(block.messages)
        if self.at is not None:
            self.at.free(turn)
        for items in self.lists:
            turn.free(items)
        for table in self.tables:
            turn.free_table(table)

    def _free_pages(self, turn: Turn) -> Iterator[int]:
        pages = self.pages
        while pages:
            page = pages.pop()
            window = page.window
            if window is not None:
                page.window = None
                turn.free(window.items)
            yield 1
