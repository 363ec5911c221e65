"""The messages that leave a queue all at once, because it is purged or deleted.

The queue forgets them in one step, however many they are.  What remains to be done for each of them
(its ack in the journal, its place in a chunk, its memory) is done in slices by `Purging`; of a
deleted queue only the memory remains.
"""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.page import Page
from leveret.broker.backlog.window import Returned, Returns, Window
from leveret.broker.core.work import WorkAccount


@final
class Detached:
    """What waited in a queue."""

    def __init__(self) -> None:
        #: What lay in memory: new messages in windows, what had come back, and all of a queue with
        #: priorities.
        self.windows: Final[list[Window]] = []
        self.returns: Returns | None = None
        self.items: list[Returned] = []
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
        account.steps += i64(len(self.pages)) >> 3
        for page in self.pages:
            window = page.window
            if window is not None:
                page.window = None
                account.free(window.items)
        for window in self.windows:
            account.free(window.items)
        returns = self.returns
        if returns is not None:
            account.free(returns.heap)
            account.free_table(returns.sequences)
        account.free(self.items)
        for items in self._lists:
            account.free(items)
        for table in self._tables:
            account.free_table(table)
