"""What snapshot and journal hold of one queue, as a start of the broker needs it; see `restore`."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.backlog.window import Returned
from leveret.broker.core.ownership import Owner
from leveret.store.recovery.queue_state import QueueState


@final
class RestoredQueue(QueueState[Returned]):
    """The recorded state of one queue, with the messages as the queue will hold them.

    Messages in chunks are not kept in `messages`.
    """

    def __init__(self, queue_id: i64) -> None:
        super().__init__(queue_id)
        self.redelivered_below: i64 = 0
        #: Whether it is a quorum queue that keeps the levels of messages.
        self.has_levels = False
        #: When returned messages are due for their next try.
        self.retries: dict[i64, i64] = {}
        #: The owners of the names of consumers, if they are recorded.
        self.offset_owners: dict[bytes, Owner] = {}

    def hand_over(self, first: i64, last: i64) -> None:
        """Leave messages to the chunk that has them, and keep what the chunk does not hold."""
        for sequence in self.kept_between(first, last):
            returned = self.messages.pop(sequence)
            if returned.count > 0:
                self.counts[sequence] = returned.count
