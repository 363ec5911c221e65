"""The methods queue.declare and queue.delete for super streams.

A queue and a super stream cannot have the same name.
"""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.super_streams.declare import declare_super_stream
from leveret.broker.super_streams.super_stream import (
    PARTITIONS,
    delete_super_stream,
    find_super_stream,
    partitions_of,
    super_stream_label,
    waiting_in,
)
from leveret.errors import NotFound, PreconditionFailed
from leveret.names import Name
from leveret.session.channel.channel import ServerChannel
from leveret.wire.methods import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk


def is_super_name(channel: ServerChannel, name: Name) -> bool:
    """Return whether a name is that of a super stream and not of a queue."""
    vhost = channel.vhost
    return name not in vhost.queues.by_name and find_super_stream(vhost, name) is not None


def declare_super(channel: ServerChannel, name: Name, method: QueueDeclare) -> None:
    """Declare a super stream, or (passive) answer with its counts.

    Raises: AccessRefused (403); PreconditionFailed (406).
    """
    if method.passive:
        channel.connection.access.see("exchange", name)
        _answer(channel, name, method)
    else:
        channel.connection.start(_declaring(channel, name, method))


def _declaring(channel: ServerChannel, name: Name, method: QueueDeclare) -> Iterator[int]:
    """Declare a super stream.  Raises: as `declare_super_stream`."""
    connection = channel.connection
    where = super_stream_label(channel.vhost, method.queue)
    if PARTITIONS not in method.arguments:
        raise PreconditionFailed(f"{where} already exists, so no queue can have its name")
    if method.exclusive or method.auto_delete or not method.durable:
        raise PreconditionFailed(f"{where} must be durable, not exclusive and not auto-delete")
    yield from declare_super_stream(
        channel.vhost, method.queue, method.arguments, connection.access, connection.as_owner
    )
    if channel.awaits_reply():
        _answer(channel, name, method)


def _answer(channel: ServerChannel, name: Name, method: QueueDeclare) -> None:
    """Answer with the messages and consumers of a super stream."""
    channel.last_queue = name
    if method.no_wait:
        return
    exchange = find_super_stream(channel.vhost, name)
    streams = [] if exchange is None else partitions_of(channel.vhost, exchange)
    consumers = 0
    for stream in streams:
        consumers += len(stream.consumers)
    channel.connection.reply(channel.number, QueueDeclareOk(name, waiting_in(streams), consumers))


def delete_super(channel: ServerChannel, name: Name, method: QueueDelete) -> Iterator[int]:
    """Delete a super stream, and answer with the number of deleted messages.

    Raises: AccessRefused (403); PreconditionFailed (406) if in use or not empty.
    """
    vhost, access = channel.vhost, channel.connection.access
    waiting = 0
    try:
        waiting = yield from delete_super_stream(
            vhost, name, method.if_unused, method.if_empty, access
        )
    except NotFound:
        # Another client has deleted it in the meantime, which is not an error.
        vhost.wait_for_removal()
    if not method.no_wait and channel.awaits_reply():
        channel.connection.reply(channel.number, QueueDeleteOk(waiting))
