"""Closes channels, requeueing their deliveries, and settles many deliveries, as long operations.

A queue delivers nothing to its consumers until all of its messages are requeued, so that they keep
their order.  The reply does not wait for a sync, because an ack that is lost in a crash causes only
a second delivery, and a lost requeue at most a lower delivery count.

Invariants: a delivery is settled once; a queue that was paused delivers again at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from leveret.broker.scheduler.task import WAIT
from leveret.limits import LETTERS_WAITING_MAX
from leveret.session.channel.channel import ServerChannel
from leveret.session.channel.unacked import REQUEUE, RETRY

if TYPE_CHECKING:
    from leveret.broker.consumers.consumer import Source
    from leveret.wire.method import Method

#: The maximum deliveries, and bytes of their messages, settled between two yields.  Bytes are
#: limited because freeing a message takes time.
SETTLED_AT_ONCE: Final = 512
SETTLED_BYTES: Final = 1 << 25


def settle_up_to(
    channel: ServerChannel, tag: i64, outcome: i64, answer: Method | None
) -> Iterator[int]:
    """Settle the deliveries of a channel up to a tag, and send the answer, if any."""
    letters = channel.connection.core.scheduler.letters
    held: dict[Source, None] = {}
    makes_letters = False
    while channel.unacked.has_up_to(tag):
        before = letters.count()
        if makes_letters and before > LETTERS_WAITING_MAX:
            yield WAIT
        else:
            cost = _settle_some(channel, tag, outcome, held)
            # An operation without dead letters must not wait for those of others.
            makes_letters = letters.count() > before
            yield cost
    while held:
        held.popitem()[0].end_returns()
        yield 1
    if answer is not None and channel.awaits_reply():
        channel.connection.send(channel.number, answer)


def _settle_some(channel: ServerChannel, tag: i64, outcome: i64, held: dict[Source, None]) -> int:
    """Settle some deliveries and return the cost; add the queues paused for requeues to `held`."""
    settled = channel.unacked.take_up_to(tag, SETTLED_AT_ONCE, SETTLED_BYTES)
    if outcome in (REQUEUE, RETRY):
        for unacked in settled:
            queue = unacked.queue
            if queue not in held:
                held[queue] = None
                queue.begin_returns()
    channel.settle(settled, outcome)
    return len(settled) + 1


def release_channel(channel: ServerChannel) -> Iterator[int]:
    """End the consumers of a closing channel, and requeue its deliveries."""
    consumers = channel.end()
    # Remove the consumers first, so that nothing is delivered to a closing channel, and the newest
    # first, because removing the last one in a queue's list is cheap.
    # An auto-delete queue is deleted at the end, after its messages are requeued.
    for consumer in reversed(consumers):
        # The consumer may have ended in the meantime.
        if channel.take_consumer(consumer.tag) is consumer and not consumer.queue.deleted:
            consumer.queue.unsubscribe(consumer)
        yield 1
    if channel.replies is not None:
        channel.vhost.queues.drop(channel.replies)
        channel.replies = None
    yield from settle_up_to(channel, channel.delivery_tag, RETRY, None)
    for consumer in consumers:
        channel.vhost.queues.end_unused(consumer.queue)
        yield 1


def close_channel(channel: ServerChannel, close: Method) -> Iterator[int]:
    """Release a channel, and then send the client `close`."""
    yield from release_channel(channel)
    # Ask the connection: a closing channel awaits no reply.
    if channel.connection.awaits_reply():
        channel.connection.send(channel.number, close)
