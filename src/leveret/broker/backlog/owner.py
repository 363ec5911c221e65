"""The additional interface of queues with pages.

Invariant: only through this interface do pages find out about messages that are not waiting: those
unacked, being dead-lettered, or retained after their ack.
"""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import i64, mypyc_attr, trait

from leveret.broker.backlog.window import RequeuedMessage


@trait
@mypyc_attr(allow_interpreted_subclasses=True)
class BacklogOwner:
    """A queue with pages: its deadlines, and its messages that are not waiting."""

    def expires(self) -> bool:
        """Return whether messages may expire or be dropped before a consumer takes them."""
        return False

    def note_deadline(self, deadline_ms: i64, sequence: i64) -> None:
        """Set the deadline of a message, unless it is NO_DEADLINE."""

    def note_page_deadline(self, deadline_ms: i64, first: i64) -> None:
        """Set the deadline at which the page that begins at `first` is read."""

    def arrived(self) -> None:
        """Handle a loaded page, which may contain messages that expire."""

    def gaps_return(self) -> bool:
        """Return whether messages missing from `out_within` may return to the queue."""
        return False

    @abstractmethod
    def out_within(self, first: i64, last: i64) -> list[RequeuedMessage]:
        """Return the persistent messages in a range that are not waiting, in any order."""
