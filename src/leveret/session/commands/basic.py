"""Dispatches the methods of class basic, and handles basic.qos (prefetch) and basic.cancel.

`ack`, `consume`, `get` and `session/publish` handle the others.
"""

from __future__ import annotations

from leveret.errors import NotImplementedFault
from leveret.session.channel.channel import ServerChannel
from leveret.session.channel.unacked import ACK, REJECT, REQUEUE, RETRY
from leveret.session.commands.ack import recover, settle
from leveret.session.commands.consume import consume
from leveret.session.commands.get import get
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicReject,
)


def handle_basic(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class basic; return False for one that clients must not send."""
    if isinstance(method, BasicAck):
        settle(channel, method.delivery_tag, method.multiple, ACK)
    elif isinstance(method, BasicNack):
        outcome = REQUEUE if method.requeue else REJECT
        settle(channel, method.delivery_tag, method.multiple, outcome)
    elif isinstance(method, BasicReject):
        settle(channel, method.delivery_tag, False, RETRY if method.requeue else REJECT)
    elif isinstance(method, BasicGet):
        get(channel, method)
    elif isinstance(method, BasicConsume):
        consume(channel, method)
    elif isinstance(method, BasicCancel):
        _cancel(channel, method)
    elif isinstance(method, BasicQos):
        _qos(channel, method)
    elif isinstance(method, BasicRecover | BasicRecoverAsync):
        recover(channel, method)
    else:
        return False
    return True


def _cancel(channel: ServerChannel, method: BasicCancel) -> None:
    """Cancel a consumer; an unknown tag is not an error (behaviour 53: cancel-ok)."""
    channel.connection.core.syncs.reply_group = 0
    consumer = channel.take_consumer(method.consumer_tag)
    if consumer is not None:
        channel.vhost.queues.unsubscribe(consumer)
    if not method.no_wait:
        channel.connection.reply(channel.number, BasicCancelOk(method.consumer_tag))


def _qos(channel: ServerChannel, method: BasicQos) -> None:
    """Set the prefetch of new consumers, or of the channel (behaviour 56: global flag)."""
    if method.prefetch_size != 0:
        raise NotImplementedFault(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.prefetch_count = method.prefetch_count
        channel.offer()
    else:
        channel.prefetch_next = method.prefetch_count
    channel.connection.send(channel.number, BasicQosOk())
