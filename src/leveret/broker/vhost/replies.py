"""Direct reply-to, with addresses that route straight to a waiting channel.

A client consumes from `amq.rabbitmq.reply-to`, and in its requests the broker replaces that name by
a generated address.  A publish to the default exchange with the address as routing key reaches the
channel; nothing is declared, bound or stored for it.

Each address has an unlisted queue, which is kept in memory and not journaled, as long as its only
consumer exists.  So a requester that does not read is treated like any other slow consumer.

Invariant: an address contains a token that cannot be guessed, is used once, and stops routing when
its consumer ends.  It is valid in one vhost.

Source: behaviour 65 (direct reply-to).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.core import Core
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.link import Link

#: The name from which clients consume and which they write to reply_to.
REPLY_NAME: Final = "amq.rabbitmq.reply-to"

#: The prefix of all addresses.
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
        """Create the queue of a new address, which is the queue's name."""
        queue = ClassicQueue(
            core, queue_id, REPLY_PREFIX + token, QueueAttributes(False, True, True)
        )
        queue.owner = link
        core.scheduler.changes += 1
        self.queues[queue.name] = queue
        return queue

    def close(self, queue: Queue) -> bool:
        """Close the address of `queue`; return whether it had one."""
        if self.queues.get(queue.name) is not queue:
            return False
        queue.scheduler.changes += 1
        del self.queues[queue.name]
        queue.mark_deleted()
        queue.drop()
        return True
