"""Super streams over AMQP: the methods of queues, where the name is that of a super stream.

A queue of that name would come first, but there is none: each is refused while the other is there.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.admin.super_stream import (
    PARTITIONS,
    check_declare_access,
    check_delete_access,
    declare_super_stream,
    delete_super_stream,
    find_super_stream,
    partition_count,
    partitions_of,
    super_stream_label,
    waiting_in,
)
from leveret.broker.stream.stream import Stream
from leveret.broker.stream.super_reader import SuperReading
from leveret.errors import PreconditionFailed
from leveret.names import Name
from leveret.session.channel.channel import Channel
from leveret.wire.methods import QueueDeclare, QueueDeclareOk


def is_super_name(channel: Channel, name: Name) -> bool:
    """Return whether a name is that of a super stream, and of no queue."""
    vhost = channel.vhost
    return name not in vhost.queues.by_name and find_super_stream(vhost, name) is not None


def declare_super(channel: Channel, name: Name, method: QueueDeclare) -> None:
    """Declare a super stream, or (passive) say what it holds.

    Raises: AccessRefused (403); PreconditionFailed (406).
    """
    vhost = channel.vhost
    if method.passive:
        channel.connection.access.see("exchange", name)
    else:
        _check_declare(channel, name, method)
        declare_super_stream(vhost, name, method.arguments)
    channel.name_queue(name)
    if method.no_wait:
        return
    streams = _streams(channel, name)
    consumers = 0
    for stream in streams:
        consumers += len(stream.consumers)
    channel.connection.reply(
        channel.number, QueueDeclareOk(name, int(waiting_in(streams)), consumers)
    )


def _check_declare(channel: Channel, name: Name, method: QueueDeclare) -> None:
    """Check that the parts may be declared and bound.

    Raises: AccessRefused (403); PreconditionFailed (406).
    """
    access = channel.connection.access
    where = super_stream_label(channel.vhost, name)
    if PARTITIONS not in method.arguments:
        raise PreconditionFailed(f"there is a {where}, and it is no queue")
    if method.exclusive or method.auto_delete or not method.durable:
        raise PreconditionFailed(f"a {where} is durable, not exclusive and not auto-delete")
    check_declare_access(access, name, partition_count(method.arguments, where))


def delete_super(channel: Channel, name: Name, if_unused: bool, if_empty: bool) -> i64:
    """Delete a super stream; return how many messages it held.

    Raises: AccessRefused (403); PreconditionFailed (406) when in use or not empty.
    """
    check_delete_access(channel.connection.access, channel.vhost, name)
    return delete_super_stream(channel.vhost, name, if_unused, if_empty)


def read_super(channel: Channel, name: Name) -> SuperReading:
    """Return what a consumer of all partitions is subscribed to.  Raises: AccessRefused (403)."""
    reading = SuperReading(channel.connection.turn, name, _streams(channel, name))
    for asked in reading.names():
        channel.connection.access.read("queue", asked)
    return reading


def _streams(channel: Channel, name: Name) -> list[Stream]:
    exchange = find_super_stream(channel.vhost, name)
    return [] if exchange is None else partitions_of(channel.vhost, exchange)
