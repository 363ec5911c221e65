"""The state of one queue in snapshot and journal, for a start of the broker; see `restore`."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.ownership import Owner
from leveret.store.recovery.queue_state import QueueState


@final
class RestoredQueue(QueueState[RequeuedMessage]):
    """The recorded state of one queue, with messages in the form that the queue needs.

    Messages in chunks are not kept in `messages`.
    """

    def __init__(self, queue_id: i64) -> None:
        super().__init__(queue_id)
        self.redelivered_below: i64 = 0
        #: Whether this is a quorum queue that keeps message levels.
        self.has_levels = False
        #: When returned messages are due for their next retry.
        self.retries: dict[i64, i64] = {}
        #: The owners of consumer names, if they are recorded.
        self.offset_owners: dict[bytes, Owner] = {}

    def hand_over(self, first: i64, last: i64) -> None:
        """Drop messages that are in a chunk now, and keep their delivery counts."""
        for sequence in self.kept_between(first, last):
            returned = self.messages.pop(sequence)
            if returned.count > 0:
                self.counts[sequence] = returned.count
