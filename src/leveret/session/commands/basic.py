"""The class basic: get, settle, cancel, qos, recover; see also `consume` and `publish`."""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.errors import NotImplementedFault, PreconditionFailed, ResourceLocked
from leveret.limits import TABLE_BYTES_PER_COST, UNACKED_PER_CHANNEL_MAX
from leveret.session.channel.channel import TX, Channel
from leveret.session.channel.delivery_headers import with_delivery_headers
from leveret.session.channel.release import SETTLED_AT_ONCE, SETTLED_BYTES, settle_up_to
from leveret.session.channel.unacked import ACK, REJECT, REQUEUE, RETRY
from leveret.session.commands.consume import consume
from leveret.session.commands.queue import queue_name
from leveret.store.records.returns import is_redelivered
from leveret.wire.content.output import content_cost
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)


def handle_basic(channel: Channel, method: Method) -> bool:
    """Handle a method of class basic; return False for one that clients do not send."""
    if isinstance(method, BasicAck):
        _settle(channel, method.delivery_tag, method.multiple, ACK)
    elif isinstance(method, BasicNack):
        outcome = REQUEUE if method.requeue else REJECT
        _settle(channel, method.delivery_tag, method.multiple, outcome)
    elif isinstance(method, BasicReject):
        _settle(channel, method.delivery_tag, False, RETRY if method.requeue else REJECT)
    elif isinstance(method, BasicGet):
        _get(channel, method)
    elif isinstance(method, BasicConsume):
        consume(channel, method)
    elif isinstance(method, BasicCancel):
        _cancel(channel, method)
    elif isinstance(method, BasicQos):
        _qos(channel, method)
    elif isinstance(method, BasicRecover | BasicRecoverAsync):
        _recover(channel, method)
    else:
        return False
    return True


def _settle(channel: Channel, tag: i64, multiple: bool, outcome: i64) -> None:
    """Ack, requeue or reject the delivery with a tag, or all up to it.

    Raises: PreconditionFailed (406) for an unknown tag (behaviour 58: unknown delivery tags).
    """
    channel.connection.scheduler.changes += 1
    if multiple:
        _settle_up_to(channel, tag, outcome)
        return
    unacked = channel.unacked.take(tag)
    if unacked is None:
        raise _unknown_tag(tag)
    if channel.mode == TX:
        channel.transaction.hold_settle([unacked], outcome)
    else:
        channel.settle([unacked], outcome)


def _settle_up_to(channel: Channel, tag: i64, outcome: i64) -> None:
    """Settle all deliveries up to a tag; for 0 all unacked.  Raises: PreconditionFailed (406)."""
    if tag == 0:
        tag = channel.delivery_tag
    elif tag > channel.delivery_tag or not channel.unacked.has_up_to(tag):
        raise _unknown_tag(tag)
    if channel.mode == TX:
        settled = channel.unacked.take_up_to(tag, channel.transaction.room + 1)
        channel.connection.scheduler.spent += len(settled) // LOOKED_AT_PER_COST
        channel.transaction.hold_settle(settled, outcome)
    else:
        _settle_all(channel, tag, outcome, None)


def _settle_all(channel: Channel, tag: i64, outcome: i64, answer: Method | None) -> None:
    """Settle all deliveries up to a tag, and send the answer, if any."""
    connection = channel.connection
    if outcome == ACK:
        # Nearly all acks cover fewer deliveries, and need no long operation.
        settled = channel.unacked.take_up_to(tag, SETTLED_AT_ONCE, SETTLED_BYTES)
        connection.scheduler.spent += len(settled)
        channel.settle(settled, ACK)
        if not channel.unacked.has_up_to(tag):
            return
    connection.start(settle_up_to(channel, tag, outcome, answer))


def _unknown_tag(tag: i64) -> PreconditionFailed:
    """Return the error for an unknown tag; on the wire tags are unsigned."""
    return PreconditionFailed(f"unknown delivery tag {int(tag) & 0xFFFFFFFFFFFFFFFF}")


def _get(channel: Channel, method: BasicGet) -> None:
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


def _get_later(channel: Channel, queue: ClassicQueue, no_ack: bool) -> Iterator[int]:
    """Get a message from a queue that first drops very many expired or excess messages."""
    while not queue.deleted and not queue.prepare_get():
        # `prepare_get` counts its own cost.
        yield 0
    if not channel.awaits_reply():
        return
    if queue.deleted:
        channel.connection.send(channel.number, BasicGetEmpty())
    else:
        _answer_get(channel, queue, no_ack)


def _answer_get(channel: Channel, queue: ClassicQueue, no_ack: bool) -> None:
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


def _cancel(channel: Channel, method: BasicCancel) -> None:
    """Cancel a consumer; an unknown tag is no error (behaviour 53: cancel-ok)."""
    channel.connection.core.syncs.reply_group = 0
    consumer = channel.take_consumer(method.consumer_tag)
    if consumer is not None:
        channel.vhost.queues.unsubscribe(consumer)
    if not method.no_wait:
        channel.connection.reply(channel.number, BasicCancelOk(method.consumer_tag))


def _qos(channel: Channel, method: BasicQos) -> None:
    """Set the prefetch of the next consumers, or of the channel (behaviour 56: global flag)."""
    if method.prefetch_size != 0:
        raise NotImplementedFault(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.prefetch_count = method.prefetch_count
        channel.offer()
    else:
        channel.prefetch_next = method.prefetch_count
    channel.connection.send(channel.number, BasicQosOk())


def _recover(channel: Channel, method: BasicRecover | BasicRecoverAsync) -> None:
    """Requeue all unacked messages of the channel (behaviour 60: recover)."""
    if not method.requeue:
        raise NotImplementedFault("requeue=false")
    channel.connection.scheduler.changes += 1
    answer = BasicRecoverOk() if isinstance(method, BasicRecover) else None
    _settle_all(channel, channel.delivery_tag, REQUEUE, answer)
