"""The method basic.consume: from a queue, a super stream or a direct reply-to address."""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker.consumers.consumer import (
    QueueConsumer,
    Source,
    consumer_ack_limit_ms,
    consumer_priority,
)
from leveret.broker.queue.browse import make_browser
from leveret.broker.stream.group import READER_NAME, group_of
from leveret.broker.stream.stream import TELL_STREAM_ID, Stream
from leveret.broker.super_streams.reader import SuperReading
from leveret.broker.super_streams.super_stream import permitted_partitions
from leveret.broker.users.permissions import READ
from leveret.broker.vhost.replies import REPLY_NAME
from leveret.errors import NotAllowed, PreconditionFailed
from leveret.limits import CONSUMERS_PER_CHANNEL_MAX
from leveret.names import Name
from leveret.session.channel.channel import ServerChannel
from leveret.session.commands.direct_reply_to import open_replies
from leveret.session.commands.queue import queue_name
from leveret.session.commands.super_stream import is_super_name
from leveret.wire.content.output import deliver_prefix
from leveret.wire.methods import BasicConsume, BasicConsumeOk


def consume(channel: ServerChannel, method: BasicConsume) -> None:
    """Add the consumer of a basic.consume.

    Raises: AccessRefused (403); NotFound (404); ResourceLocked (405); PreconditionFailed (406);
    NotAllowed (530); NotImplementedFault (540).
    """
    connection = channel.connection
    if method.queue == REPLY_NAME:
        replies = open_replies(channel, method.no_ack)
        _subscribe(channel, method, replies.name, replies)
        return
    name = queue_name(channel, method.queue)
    connection.access.read("queue", name)
    if is_super_name(channel, name):
        connection.start(_consuming_all(channel, name, method))
    else:
        queue = channel.vhost.queues.existing(name, connection)
        _subscribe(channel, method, name, queue)


def _consuming_all(channel: ServerChannel, name: Name, method: BasicConsume) -> Iterator[int]:
    """Add a consumer to a super stream, after checking the permissions on all its partitions.

    Raises: as `consume`.
    """
    connection = channel.connection
    streams = yield from permitted_partitions(connection.access, channel.vhost, name, READ)
    if channel.awaits_reply():
        _subscribe(channel, method, name, SuperReading(connection.core, name, streams))


def _subscribe(channel: ServerChannel, method: BasicConsume, name: Name, queue: Source) -> None:
    """Add a consumer to a source, and answer.

    Raises: AccessRefused (403); PreconditionFailed (406); NotAllowed (530); NotImplementedFault
    (540).
    """
    connection = channel.connection
    tag = method.consumer_tag or f"amq.ctag-{connection.tokens.token()}"
    if isinstance(queue, Stream) and not method.consumer_tag and TELL_STREAM_ID in method.arguments:
        # A generated tag is the only field of the reply that can contain the stream's id.
        tag = f"{tag}.{queue.stream_id}"
    if tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    if len(channel.consumers) >= CONSUMERS_PER_CHANNEL_MAX:
        raise PreconditionFailed(
            f"the channel has reached the maximum of {CONSUMERS_PER_CHANNEL_MAX} consumers"
        )
    where = channel.vhost.queue_label(name)
    if method.arguments.get("x-browse", False) is not False:
        queue = make_browser(queue, method.arguments["x-browse"], where)
    if READER_NAME in method.arguments and isinstance(queue, Stream):
        queue = group_of(queue, method.arguments[READER_NAME], where)
    consumer = QueueConsumer(
        channel,
        queue,
        tag,
        method.no_ack,
        method.exclusive,
        channel.prefetch_next,
        method.arguments,
    )
    consumer.priority = consumer_priority(method.arguments, where)
    consumer.ack_limit_ms = consumer_ack_limit_ms(method.arguments, where)
    connection.core.limit_acks(consumer.ack_limit_ms)
    consumer.prefix = deliver_prefix(tag)
    queue.subscribe(consumer, where)
    channel.add_consumer(consumer)
    connection.broker.consumer_added(consumer)
    if not method.no_wait:
        connection.send(channel.number, BasicConsumeOk(tag))
