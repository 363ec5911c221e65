"""`message.process()`: its end acks the message, an exception refuses it, in both shells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from leveret import client
from leveret.client import Message, blocking
from leveret.errors import NotFound

SECONDS = 60.0


class Failed(Exception):
    """What a handler raises."""


@pytest.fixture
def channel(broker_uri: str) -> Iterator[blocking.Channel]:
    """An open channel."""
    with blocking.connect(broker_uri) as connection:
        yield connection.channel()


@pytest.fixture
def queue(channel: blocking.Channel) -> str:
    """A queue with one message in it."""
    queue = channel.queue_declare(exclusive=True).queue
    channel.confirm_select()
    channel.publish(b"job", routing_key=queue)
    return queue


def got(channel: blocking.Channel, queue: str) -> Message:
    """Get the message."""
    message = channel.get(queue)
    assert message is not None
    return message


def left(channel: blocking.Channel, queue: str) -> int:
    """Return how many messages come back when all that is unacked does."""
    channel.recover()
    return channel.queue_declare(queue, passive=True).message_count


def test_the_end_of_the_block_acks(channel: blocking.Channel, queue: str) -> None:
    states = []
    with got(channel, queue).process() as message:
        states.append(message.processed)
    assert [*states, message.processed] == [False, True]
    assert left(channel, queue) == 0


def test_an_exception_refuses_and_goes_on(channel: blocking.Channel, queue: str) -> None:
    with pytest.raises(Failed), got(channel, queue).process():
        raise Failed
    assert left(channel, queue) == 0


def test_an_exception_may_requeue(channel: blocking.Channel, queue: str) -> None:
    with pytest.raises(Failed), got(channel, queue).process(requeue=True):
        raise Failed
    again = got(channel, queue)
    assert again.redelivered
    with pytest.raises(Failed), again.process(requeue=True, reject_on_redelivered=True):
        raise Failed
    assert left(channel, queue) == 0


def test_who_settles_within_the_block_says_so(channel: blocking.Channel, queue: str) -> None:
    with got(channel, queue).process(ignore_processed=True) as message:
        message.nack(requeue=True)
    message = got(channel, queue)
    message.ack()
    with pytest.raises(Failed), message.process(ignore_processed=True):
        raise Failed
    assert left(channel, queue) == 0


def test_a_lost_channel_hides_no_exception(
    channel: blocking.Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = got(channel, queue)
    with pytest.raises(NotFound):
        channel.queue_declare("no such queue", passive=True)
    with (
        caplog.at_level(logging.WARNING, "leveret.client"),
        pytest.raises(Failed),
        message.process(),
    ):
        raise Failed
    assert "cannot be rejected: 404" in caplog.text
    with pytest.raises(NotFound), message.process():
        pass  # nothing went wrong here but the ack


def test_the_same_in_asyncio(broker_uri: str) -> None:
    async def use() -> None:
        async with asyncio.timeout(SECONDS), await client.connect(broker_uri) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            for body in (b"good", b"bad"):
                await channel.publish(body, routing_key=queue)
            handled = []
            async for message in channel.consume(queue):
                handled.append((message.body, message.redelivered))
                if len(handled) == 3:
                    message.ack()
                    break
                if message.body == b"good":
                    async with message.process():
                        pass
                else:
                    with pytest.raises(Failed):
                        async with message.process(requeue=True):
                            raise Failed
            assert handled == [(b"good", False), (b"bad", False), (b"bad", True)]
            await channel.recover()
            assert (await channel.queue_declare(queue, passive=True)).message_count == 0

    asyncio.run(use())
