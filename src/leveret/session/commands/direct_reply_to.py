"""Direct reply-to on a channel: the reply consumer, and declares that check a reply address.

The vhost manages the addresses (`broker/vhost/replies.py`); `inspect` writes them into requests.
Texts and codes are RabbitMQ's (behaviour 65: direct reply-to).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.queue.queue import Queue
from leveret.broker.vhost.replies import REPLY_NAME
from leveret.errors import NotFound, PreconditionFailed
from leveret.wire.methods import QueueDeclare, QueueDeclareOk

if TYPE_CHECKING:
    from leveret.session.channel.channel import ServerChannel


def open_replies(channel: ServerChannel, no_ack: bool) -> Queue:
    """Open a reply address for `channel`; return its queue, for the caller to consume from.

    Raises: PreconditionFailed (406) for a consumer with acks, or a second one on the channel.
    """
    current = channel.replies
    if current is not None and not current.deleted:
        raise PreconditionFailed("reply consumer already set")
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    vhost = channel.vhost
    connection = channel.connection
    queue = vhost.queues.replies.open(
        vhost.core, vhost.ids.next_queue_id(), connection, connection.tokens.token()
    )
    channel.replies = queue
    return queue


def declare_replies(channel: ServerChannel, method: QueueDeclare) -> None:
    """Answer the declare of a reply address; declare nothing, even if it is not passive.

    Raises: NotFound (404) if the address has no consumer.
    """
    name = method.queue
    vhost = channel.vhost
    if name != REPLY_NAME and name not in vhost.queues.replies.queues:
        raise NotFound(f"no {vhost.queue_label(name)}")
    if not method.no_wait:
        channel.connection.send(channel.number, QueueDeclareOk(name, 0, 1))
