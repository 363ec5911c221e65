"""Settles deliveries, for basic.ack, basic.nack, basic.reject and basic.recover.

`basic.py` calls `settle` with the outcome that each method requests.
"""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.errors import NotImplementedFault, PreconditionFailed
from leveret.session.channel.channel import TX, ServerChannel
from leveret.session.channel.release import SETTLED_AT_ONCE, SETTLED_BYTES, settle_up_to
from leveret.session.channel.unacked import ACK, REQUEUE
from leveret.wire.method import Method
from leveret.wire.methods import BasicRecover, BasicRecoverAsync, BasicRecoverOk


def settle(channel: ServerChannel, tag: i64, multiple: bool, outcome: i64) -> None:
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


def _settle_up_to(channel: ServerChannel, tag: i64, outcome: i64) -> None:
    """Settle all deliveries up to a tag, or all for 0.  Raises: PreconditionFailed (406)."""
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


def _settle_all(channel: ServerChannel, tag: i64, outcome: i64, answer: Method | None) -> None:
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


def recover(channel: ServerChannel, method: BasicRecover | BasicRecoverAsync) -> None:
    """Requeue all unacked messages of the channel (behaviour 60: recover)."""
    if not method.requeue:
        raise NotImplementedFault("requeue=false")
    channel.connection.scheduler.changes += 1
    answer = BasicRecoverOk() if isinstance(method, BasicRecover) else None
    _settle_all(channel, channel.delivery_tag, REQUEUE, answer)
