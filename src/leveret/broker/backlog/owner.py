"""What pages ask of the queue whose messages they hold, beyond what every queue is.

Invariant: it is all that the pages know of messages that do not wait.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.backlog.source import Returned


class BacklogOwner:
    """A queue, as far as its pages ask: deadlines, and what left its place and is not gone."""

    def expires(self) -> bool:
        """Tell whether messages may have to leave before a consumer takes them."""
        return False

    def note_deadline(self, deadline_ms: i64, sequence: i64) -> None:
        """Have a message expire."""

    def note_page_deadline(self, deadline_ms: i64, first: i64) -> None:
        """Have the page that begins at `first` read when a message in it may expire."""

    def arrived(self) -> None:
        """Hear that a page is in memory: something may be due, or may be handed out."""

    def is_out(self, sequence: i64) -> bool:
        """Tell whether a message left its place and has to survive until it is gone."""
        return False

    def out_from(self, start: i64) -> list[Returned]:
        """Return the messages from `start` on that do not wait and have to survive, in any order.

        They are handed out, being dead-lettered, or retained after their ack.
        """
        return []

    def out_sequences(self) -> list[int]:
        """Return the sequences of all messages that do not wait and are not gone, in any order."""
        return []
