"""Direct reply-to on a channel: the consumer of replies, and asking whether an address lives.

The addresses are the vhost's (`broker/vhost/replies.py`); a publish that asks for one is in
`inspect`.  Texts and codes are RabbitMQ's (behaviour 65).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.queue.queue import Queue
from leveret.broker.vhost.replies import REPLY_NAME
from leveret.errors import NotFound, PreconditionFailed
from leveret.wire.methods import QueueDeclare, QueueDeclareOk

if TYPE_CHECKING:
    from leveret.session.channel.channel import Channel


def open_replies(channel: Channel, no_ack: bool) -> Queue:
    """Return the queue behind a new address of `channel`, to be consumed at once.

    Raises: PreconditionFailed (406) for a consumer that acks, or the channel's second one.
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


def declare_replies(channel: Channel, method: QueueDeclare) -> None:
    """Answer whether a consumer waits at an address; nothing is declared, passive or not.

    Raises: NotFound (404) where none does.
    """
    name = method.queue
    vhost = channel.vhost
    if name != REPLY_NAME and name not in vhost.queues.replies.queues:
        raise NotFound(f"no {vhost.queue_label(name)}")
    if not method.no_wait:
        channel.connection.send(channel.number, QueueDeclareOk(name, 0, 1))
