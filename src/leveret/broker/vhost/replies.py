"""Direct reply-to: addresses that route straight to a waiting channel (behaviour 65).

A client consumes from `amq.rabbitmq.reply-to`, and its requests carry an address of the broker's
making instead of that name.  A publish to the default exchange with the address as routing key
reaches the channel; nothing is declared, bound or stored for it.

Behind an address stands a queue that no list shows: it lives in memory, in no journal, as long as
its one consumer.  So a requester that does not read is treated as any consumer that does not.

Invariant: an address holds a token that nobody can guess, is used once, and leads nowhere from
the moment that its consumer ends.  It is an address in one vhost.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.core.core import Core
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.link import Link
from leveret.broker.values.queue_attributes import QueueAttributes

#: What a client consumes from and writes into reply_to.
REPLY_NAME: Final = "amq.rabbitmq.reply-to"

#: What every address begins with.
REPLY_PREFIX: Final = "amq.rabbitmq.reply-to."


def is_reply_name(name: str) -> bool:
    """Return whether `name` is reserved for direct reply-to."""
    return name == REPLY_NAME or name.startswith(REPLY_PREFIX)


@final
class Replies:
    """The addresses of one vhost."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}

    def open(self, core: Core, queue_id: i64, link: Link, token: str) -> Queue:
        """Return the queue of a new address, which is the queue's name."""
        queue = ClassicQueue(
            core, queue_id, REPLY_PREFIX + token, QueueAttributes(False, True, True)
        )
        queue.owner = link
        core.scheduler.changes += 1
        self.queues[queue.name] = queue
        return queue

    def close(self, queue: Queue) -> bool:
        """Close the address of `queue`; return whether it was one."""
        if self.queues.get(queue.name) is not queue:
            return False
        queue.scheduler.changes += 1
        del self.queues[queue.name]
        queue.mark_deleted()
        queue.drop()
        return True
