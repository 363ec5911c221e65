"""What the pages of a queue ask of it, beyond what every queue has.

Invariant: the pages know messages that do not wait only by this class.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.backlog.message_table import MessageTable
from leveret.broker.backlog.window import Returned
from leveret.broker.queue.queue import Queue


class BacklogOwner:
    """The queue of the pages: its deadlines, and its messages that do not wait.

    They are handed out, being dead-lettered, or retained after their ack.
    """

    def __init__(self, queue: Queue, out: MessageTable) -> None:
        self._queue: Final = queue
        #: The persistent ones that were taken and are not gone yet.
        self._out: Final = out

    def expires(self) -> bool:
        """Return whether messages may expire or be dropped before a consumer takes them."""
        return False

    def note_deadline(self, deadline_ms: i64, sequence: i64) -> None:
        """Set the deadline of a message."""

    def note_page_deadline(self, deadline_ms: i64, first: i64) -> None:
        """Set the deadline at which the page that begins at `first` is read."""

    def arrived(self) -> None:
        """Take note that a page was loaded: messages may expire, or be delivered."""
        self._queue.schedule()

    def is_out(self, sequence: i64) -> bool:
        """Return whether a persistent message was taken and is not gone yet."""
        return self._out.has(sequence)

    def gaps_return(self) -> bool:
        """Return whether messages are out that may come back and that `is_out` does not tell."""
        return False

    def out_from(self, start: i64) -> list[Returned]:
        """Return the persistent messages from `start` on that do not wait, in any order."""
        return self._out.since(start)

    def out_within(self, first: i64, last: i64) -> list[int]:
        """Return the sequences of messages in that range that do not wait and are not gone."""
        return [int(item.sequence) for item in self._out.within(first, last)]
