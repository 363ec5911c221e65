"""The class queue: declare, bind, unbind, purge, delete."""

from __future__ import annotations

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.super_streams.super_stream import PARTITIONS
from leveret.broker.users.access import Access
from leveret.broker.users.permissions import CONFIGURE
from leveret.broker.vhost.replies import is_reply_name
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AccessRefused, NotFound
from leveret.names import Name
from leveret.session.channel.channel import ServerChannel
from leveret.session.commands.direct_reply_to import declare_replies
from leveret.session.commands.exchange import (
    check_binding,
    reply_when_indexed,
    reply_when_over,
    reply_when_unbound,
)
from leveret.session.commands.super_stream import declare_super, delete_super, is_super_name
from leveret.session.publish.topic_permissions import check_way
from leveret.wire.method import Method
from leveret.wire.methods import (
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)


def handle_queue(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class queue; return False for one that clients do not send."""
    if isinstance(method, QueueDeclare):
        _declare(channel, method)
    elif isinstance(method, QueueBind):
        _bind(channel, method)
    elif isinstance(method, QueueUnbind):
        name = queue_name(channel, method.queue)
        check_binding(
            channel.connection.access,
            channel.vhost,
            "queue",
            name,
            method.exchange,
            method.routing_key,
        )
        channel.vhost.exchanges.unbind(
            method.exchange,
            name,
            True,
            method.routing_key,
            method.arguments,
            channel.connection,
        )
        reply_when_indexed(channel, method.exchange, QueueUnbindOk())
    elif isinstance(method, QueuePurge):
        _purge(channel, method)
    elif isinstance(method, QueueDelete):
        _delete(channel, method)
    else:
        return False
    return True


def queue_name(channel: ServerChannel, name: Name) -> Name:
    """Return `name`, or for "" the queue declared last (behaviour 42: on the channel).

    Raises: NotFound (404) if none was declared.
    """
    if name:
        return name
    if not channel.last_queue:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def _declare(channel: ServerChannel, method: QueueDeclare) -> None:
    connection = channel.connection
    if is_reply_name(method.queue):
        declare_replies(channel, method)
        return
    if method.queue:
        _check_named(channel, method.queue, method)
    makes_super = PARTITIONS in method.arguments and not method.passive
    if method.queue and (makes_super or is_super_name(channel, method.queue)):
        declare_super(channel, method.queue, method)
        return
    if method.passive:
        # As in RabbitMQ, an empty name does not refer to the queue declared last here.
        name = method.queue
        queue = channel.vhost.queues.existing(name, connection)
        queue.touch()
    else:
        queue = _declare_active(channel, method)
    channel.last_queue = queue.name
    queue.hand_out()
    if not method.no_wait:
        connection.reply(
            channel.number,
            QueueDeclareOk(queue.name, int(queue.ready_count()), len(queue.consumers)),
        )


def _check_named(channel: ServerChannel, name: Name, method: QueueDeclare) -> None:
    """Check that the user may learn whether a queue or super stream of that name exists.

    Raises: AccessRefused (403), with the same text for either.
    """
    access = channel.connection.access
    if method.passive:
        access.see("queue", name)
    elif name.startswith("amq.") and not access.allows(CONFIGURE, name):
        # RabbitMQ checks the name before the permission.
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    else:
        access.configure("queue", name)


def _declare_active(channel: ServerChannel, method: QueueDeclare) -> Queue:
    # An exclusive queue ends with its connection, so none is durable, as in RabbitMQ.
    connection = channel.connection
    vhost = channel.vhost
    attributes = QueueAttributes(
        method.durable and not method.exclusive,
        method.exclusive,
        method.auto_delete,
        method.arguments,
    )
    if method.queue:
        check_declare_queue(connection.access, vhost, method.queue, True, method.arguments)
        queue = vhost.queues.declare(connection, method.queue, attributes)
    else:
        token = connection.tokens.token()
        made = Name(f"amq.gen-{token}")
        check_declare_queue(connection.access, vhost, made, False, method.arguments)
        queue = vhost.queues.declare_named_by_server(connection, token, attributes)
    if queue.exclusive:
        connection.keep_exclusive(queue)
    return queue


def check_declare_queue(
    access: Access, vhost: Vhost, name: Name, by_client: bool, arguments: dict[str, object]
) -> None:
    """Check the permissions for declaring a queue, and for the dead-letter exchange of a new one.

    `by_client` is True if the client chose the name, and False if the broker did.

    Raises: AccessRefused (403; behaviour 46: read on the queue, write on the exchange).
    """
    access.configure("queue", name)
    if by_client and name.startswith("amq.") and name not in vhost.queues.by_name:
        # The vhost refuses this name with its own error.
        return
    dead_letters = arguments.get("x-dead-letter-exchange")
    if isinstance(dead_letters, str) and name not in vhost.queues.by_name:
        access.read("queue", name)
        access.write("exchange", Name(dead_letters))
        key = arguments.get("x-dead-letter-routing-key")
        check_way(access, vhost, Name(dead_letters), key if isinstance(key, str) else None)


def _bind(channel: ServerChannel, method: QueueBind) -> None:
    name = queue_name(channel, method.queue)
    key = method.routing_key
    if not method.queue and not key:
        key = str(name)
    check_binding(channel.connection.access, channel.vhost, "queue", name, method.exchange, key)
    channel.vhost.exchanges.bind(
        method.exchange, name, True, key, method.arguments, channel.connection
    )
    reply_when_indexed(channel, method.exchange, None if method.no_wait else QueueBindOk())


def _delete(channel: ServerChannel, method: QueueDelete) -> None:
    """Delete a queue or a super stream, and answer with the number of deleted messages."""
    name = queue_name(channel, method.queue)
    channel.connection.access.configure("queue", name)
    if is_super_name(channel, name):
        channel.connection.start(delete_super(channel, name, method))
        return
    vhost = channel.vhost
    before = vhost.exchanges.unbinding
    waiting = vhost.queues.delete(channel.connection, name, method.if_unused, method.if_empty)
    answer = None if method.no_wait else QueueDeleteOk(int(waiting))
    reply_when_unbound(channel, before, answer)


def _purge(channel: ServerChannel, method: QueuePurge) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.read("queue", name)
    queue = channel.vhost.queues.existing(name, channel.connection)
    queue.hand_out()
    dropped = queue.purge()
    answer = None if method.no_wait else QueuePurgeOk(int(dropped))
    reply_when_over(channel, queue.purging if isinstance(queue, WaitingQueue) else None, answer)
