"""A queue's share of the quotas of its user and its vhost: the queue itself, and its messages."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.ownership import Owner
from leveret.broker.queue.queue import Queue
from leveret.broker.quotas import QuotaShare, Use


@final
class QueueShare(QuotaShare):
    """The share of one queue."""

    def __init__(self, vhost: Use, queue: Queue) -> None:
        # The store of a delayed exchange has no name, and does not count as a queue of the user.
        super().__init__(vhost, 1 if queue.name else 0)
        self._queue: Final = queue

    def messages_now(self) -> i64:
        """Return the number of counted messages: ready, to be retried, unacked or retained.

        A stream's unacked messages are still in the stream.  A committed batch does not count,
        because the queues that receive it must have room for it.
        """
        queue = self._queue
        if queue.kept:
            return 0
        if queue.has_offsets:
            return queue.ready_count()
        waiting = queue.ready_count() + queue.retry_count()
        return waiting + queue.unacked_count + queue.retained_count()

    def bytes_now(self) -> i64:
        """Return the bytes of the counted messages."""
        queue = self._queue
        if queue.kept:
            return 0
        if queue.has_offsets:
            return queue.ready_bytes()
        waiting = queue.ready_bytes() + queue.retry_bytes()
        return waiting + queue.unacked_bytes + queue.retained_bytes()

    def follow(self) -> None:
        """Start or stop checking the admission of each publish."""
        self._queue.target.look_at_admission()


def count_queue(queue: Queue, vhost: Use) -> None:
    """Count a new queue's messages for its vhost, and for a user once it has an owner."""
    share = QueueShare(vhost, queue)
    queue.quota = share
    queue.target.share = share
    share.judge()


def give_queue(queue: Queue, owner: Owner | None) -> None:
    """Count a queue and its messages for another user from now on; None for no user."""
    share = queue.quota
    if share is not None:
        quotas = queue.core.quotas
        before = share.user
        share.give(owner, quotas.of(owner))
        quotas.forget_unused(before)


def count_no_more(queue: Queue) -> None:
    """Stop counting a queue and its messages because it is deleted."""
    share = queue.quota
    if share is not None:
        before = share.user
        share.end()
        queue.quota = None
        queue.target.share = None
        queue.core.quotas.forget_unused(before)
