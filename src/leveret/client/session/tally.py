"""Confirms of a channel that are counted, but not recorded one by one.

Bulk publishers need only the number of unconfirmed messages, the lowest unconfirmed sequence, the
nacks and the returned messages.  `Tally` replaces `PublisherConfirms` on their channels.

Invariants: all sequences below `lowest` have settled, and above it only those in `_early`; a
sequence settles once.  This module is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.client.session.confirms import PublisherConfirms
from leveret.errors import PreconditionFailed

if TYPE_CHECKING:
    from leveret.client.errors import PublishFailed
    from leveret.client.events import Token
    from leveret.client.message import ReturnedMessage


class Tally(PublisherConfirms):
    """The confirms of one channel, from its first publish on."""

    def __init__(self) -> None:
        super().__init__()
        #: The lowest unconfirmed sequence, or the next sequence if all are confirmed.
        self.lowest = 1
        #: The number of nacked publishes, and the sequence of the first.
        self.nack_count = 0
        self.first_nack = 0
        self._early: set[int] = set()
        self._came_back: list[ReturnedMessage] = []

    @property
    def unconfirmed(self) -> int:
        """The number of unconfirmed publishes."""
        return self.last + 1 - self.lowest - len(self._early)

    def published_many(self, count: int) -> None:
        """Count publishes."""
        self.last += count

    def returned(self, message: ReturnedMessage) -> bool:
        """Store a returned message."""
        self._came_back.append(message)
        return True

    def take_returned(self) -> list[ReturnedMessage]:
        """Return the messages returned since the last call."""
        taken, self._came_back = self._came_back, []
        return taken

    def settle(
        self, sequence: int, multiple: bool, acked: bool
    ) -> list[tuple[Token, PublishFailed | None]]:
        """Settle publishes after basic.ack or basic.nack; the list of resolved tokens is empty.

        Raises: PreconditionFailed (406) for a sequence that was never published.
        """
        if sequence > self.last or sequence < 0 or (sequence == 0 and not multiple):
            raise PreconditionFailed(f"unknown delivery tag {sequence}")
        before = self.unconfirmed
        first = sequence
        if multiple:
            first = self.lowest
            self._settle_up_to(sequence or self.last)
        elif sequence >= self.lowest:
            self._early.add(sequence)
            self._settle_up_to(self.lowest - 1)
        settled = before - self.unconfirmed
        if not acked and settled > 0:
            self.first_nack = self.first_nack or first
            self.nack_count += settled
        return []

    def _settle_up_to(self, upper: int) -> None:
        """Settle all sequences up to `upper`, and advance over early ones."""
        if upper >= self.lowest:
            self._early = {number for number in self._early if number > upper}
            self.lowest = upper + 1
        while self.lowest in self._early:
            self._early.remove(self.lowest)
            self.lowest += 1

    def settled_to(self, sequence: int) -> bool:
        """Return whether every publish up to `sequence` has settled."""
        return self.lowest > sequence

    def abandon(self) -> list[Token]:
        """Record whether the channel ended with unconfirmed publishes; return no tokens."""
        self.lost = self.unconfirmed > 0
        return []
