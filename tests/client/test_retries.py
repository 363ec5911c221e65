"""Queues that deliver again after a delay, and the deaths of a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from leveret.client import DeadLettering, blocking, retry_arguments


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_message_is_tried_again_until_it_fails_for_good(
    broker_uri: str, name: str, attempts: int
) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        failed = channel.queue_declare(exclusive=True).queue
        retries = retry_arguments(attempts, delay=0.001, delay_max=0.002, failed_queue=failed)
        channel.queue_declare(name, exclusive=True, arguments=retries)
        channel.publish(b"job", routing_key=name, expiration=3600)
        jobs = channel.consume(name)
        for _ in range(attempts):
            next(jobs).reject()
        dead = next(channel.consume(failed, no_ack=True))
        assert dead.body == b"job"
        [death] = dead.deaths
        assert death.time is not None
        assert abs(datetime.now(UTC) - death.time) < timedelta(hours=1)
        expected = DeadLettering(name, "delivery_limit", 1, death.time, "", (name,), "3600000")
        assert death == expected


def test_the_delays_of_retries_are_milliseconds() -> None:
    assert retry_arguments(10, delay=timedelta(minutes=1), delay_max=3600) == {
        "x-delivery-limit": 9,
        "x-delayed-retry-type": "failed",
        "x-delayed-retry-min": 60_000,
        "x-delayed-retry-max": 3_600_000,
    }


@pytest.mark.parametrize(
    ("attempts", "delay", "failed_queue", "text"),
    [
        (0, 1.0, "", "attempts is 0: it must be at least 1"),
        (1, -1.0, "", "delay is -1.0: it must be 0 or more seconds"),
        (1, 1.0, "q" * 256, "failed_queue .* has 256 bytes"),
    ],
)
def test_invalid_retries_are_refused(
    attempts: int, delay: float, failed_queue: str, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        retry_arguments(attempts, delay=delay, failed_queue=failed_queue)


def test_the_newest_death_is_the_first(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        last = channel.queue_declare(exclusive=True).queue
        to_last = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": last}
        second = channel.queue_declare(exclusive=True, arguments=to_last).queue
        to_second = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": second}
        first = channel.queue_declare(exclusive=True, arguments=to_second).queue
        channel.publish(b"job", routing_key=first)
        for queue in (first, second):
            message = next(channel.consume(queue))
            message.reject(requeue=False)
        dead = next(channel.consume(last, no_ack=True))
        assert [(d.queue, d.reason, d.count) for d in dead.deaths] == [
            (second, "rejected", 1),
            (first, "rejected", 1),
        ]


def test_a_publisher_may_have_written_the_deaths(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        empty = DeadLettering("", "", 0, None, "", (), None)
        for header, deaths in (
            ("text", ()),
            (["text", {"count": "two", "time": 3, "routing-keys": "key"}], (empty,)),
        ):
            channel.publish(b"1", routing_key=queue, headers={"x-death": header})
            message = channel.get(queue, no_ack=True)
            assert message is not None
            assert message.deaths == deaths
        channel.publish(b"2", routing_key=queue)
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert message.deaths == ()
