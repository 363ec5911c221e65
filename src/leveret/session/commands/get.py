"""The method basic.get: one message of a classic queue, or get-empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.scheduler.task import WAIT
from leveret.errors import NotImplementedFault, PreconditionFailed, ResourceLocked
from leveret.limits import TABLE_BYTES_PER_COST, UNACKED_PER_CHANNEL_MAX
from leveret.session.channel.channel import ServerChannel
from leveret.session.channel.delivery_headers import with_delivery_headers
from leveret.session.commands.queue import queue_name
from leveret.store.records.returns import is_redelivered
from leveret.wire.content.output import content_cost
from leveret.wire.methods import BasicGet, BasicGetEmpty, BasicGetOk

#: The number of parts in which a task drops messages before it may have to wait for dead letters,
#: which may be those of other queues.
_PREPARED_BEFORE_WAITING: Final = 64


def get(channel: ServerChannel, method: BasicGet) -> None:
    """Answer a basic.get, at once unless the queue must drop very many messages first.

    Raises: AccessRefused (403); NotFound (404); ResourceLocked (405); PreconditionFailed (406);
    NotImplementedFault (540; behaviour 57: not from streams).
    """
    connection = channel.connection
    name = queue_name(channel, method.queue)
    connection.access.read("queue", name)
    queue = channel.vhost.queues.existing(name, connection)
    queue.check_consumed()
    if not isinstance(queue, ClassicQueue):
        raise NotImplementedFault(
            f"basic.get not supported by stream queues {channel.vhost.queue_label(name)}"
        )
    if queue.single_active:
        raise ResourceLocked(
            f"cannot obtain access to locked {channel.vhost.queue_label(name)}. basic.get "
            f"operations are not supported by {queue.kind} queues with single active consumer"
        )
    if not method.no_ack and channel.unacked.count >= UNACKED_PER_CHANNEL_MAX:
        raise PreconditionFailed(
            f"the channel has reached the maximum of {UNACKED_PER_CHANNEL_MAX} unacked messages: "
            "ack some first"
        )
    if not method.no_ack and not channel.room.has_room():
        raise PreconditionFailed(
            f"the connection has {channel.room.bytes} bytes of unacked messages, and there is no "
            "room for more (unacked_bytes_max): ack some first"
        )
    queue.hand_out()
    if queue.special and not queue.prepare_get():
        connection.start(_get_later(channel, queue, method.no_ack))
    else:
        _answer_get(channel, queue, method.no_ack)


def _get_later(channel: ServerChannel, queue: ClassicQueue, no_ack: bool) -> Iterator[int]:
    """Get a message from a queue that first drops very many expired or excess messages."""
    left: i64 = _PREPARED_BEFORE_WAITING
    while not queue.deleted and not queue.prepare_get():
        left -= 1
        # `prepare_get` counts its own cost.
        yield WAIT if left < 0 and queue.has_many_letters() else 0
    if not channel.awaits_reply():
        return
    if queue.deleted:
        channel.connection.send(channel.number, BasicGetEmpty())
    else:
        _answer_get(channel, queue, no_ack)


def _answer_get(channel: ServerChannel, queue: ClassicQueue, no_ack: bool) -> None:
    """Answer a basic.get with the next message, or get-empty."""
    connection = channel.connection
    message = queue.get(no_ack)
    if message is None:
        queue.got_nothing += 1
        connection.send(channel.number, BasicGetEmpty())
        return
    count = queue.taken_count
    tag = channel.hand_over(queue, message, queue.taken_sequence, count, no_ack)
    address = message.address
    connection.send(
        channel.number,
        BasicGetOk(
            int(tag),
            is_redelivered(count),
            address.exchange.decode("utf-8"),
            address.routing_key.decode("utf-8"),
            int(queue.ready_count()),
        ),
    )
    properties = message.properties
    if queue.adds_headers:
        properties = with_delivery_headers(queue, message, queue.taken_sequence, count)
        connection.scheduler.spent += len(message.properties) // TABLE_BYTES_PER_COST
    connection.scheduler.spent += content_cost(properties, message.body)
    channel.output.write_content(channel.number, properties, message.body)
