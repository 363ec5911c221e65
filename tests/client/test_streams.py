"""What the client makes of a wish to read a stream, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from leveret.client import BasicProperties, Message, Timestamp, blocking, stream_arguments

#: How long a message may take that should come, and how long nothing else may come.
SECONDS = 60.0
QUIET_SECONDS = 0.3


@pytest.fixture
def channel(broker_uri: str) -> Iterator[blocking.Channel]:
    """A channel that confirms, with a stream of six messages."""
    with blocking.connect(broker_uri) as connection:
        channel = connection.channel()
        channel.queue_declare("wished", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("wished", "amq.topic", "wish.#")
        channel.confirm_select()
        for number in range(6):
            headers: dict[str, object] = {"parity": number % 2}
            if number < 4:
                headers["x-stream-filter-value"] = "low"
            properties = BasicProperties(headers=headers)
            channel.publish(b"%d" % number, "amq.topic", f"wish.{number}", properties)
        channel.qos(prefetch_count=100)
        yield channel
        channel.queue_delete("wished")


def taken(messages: blocking.Consumer, count: int) -> list[Message]:
    """Wait for `count` messages, and for nothing after them; all are acked."""
    found: list[Message] = []
    while True:
        messages.inactivity_timeout = SECONDS if len(found) < count else QUIET_SECONDS
        message = next(messages, None)
        if message is None:
            return found
        message.ack()
        found.append(message)


def read(
    channel: blocking.Channel, arguments: dict[str, object], expected: list[int]
) -> list[int | None]:
    """The offsets of what comes, which should be as many as expected."""
    with channel.consume("wished", arguments=arguments) as messages:
        return [message.stream_offset for message in taken(messages, len(expected))]


def test_where_a_consumer_begins(channel: blocking.Channel) -> None:
    now = datetime.now(UTC)
    starts: dict[object, list[int]] = {
        "first": [0, 1, 2, 3, 4, 5],
        "next": [],
        "1h": [0, 1, 2, 3, 4, 5],
        -2: [4, 5],
        3: [3, 4, 5],
        now - timedelta(hours=1): [0, 1, 2, 3, 4, 5],
        now + timedelta(hours=1): [],
        Timestamp(0): [0, 1, 2, 3, 4, 5],
    }
    for start, offsets in starts.items():
        wish = stream_arguments(start)  # type: ignore[arg-type]
        assert read(channel, wish, offsets) == offsets, start


def test_what_a_consumer_wants(channel: blocking.Channel) -> None:
    wishes: list[tuple[dict[str, Any], list[int]]] = [
        ({"filter_values": ["low"]}, [0, 1, 2, 3]),
        ({"filter_values": ["none"], "match_unfiltered": True}, [4, 5]),
        ({"routing_keys": ["wish.1", "*.5"]}, [1, 5]),
        ({"headers": {"parity": 1}, "filter_values": ["low"]}, [1, 3]),
    ]
    for wish, offsets in wishes:
        assert read(channel, stream_arguments("first", **wish), offsets) == offsets


def test_a_name_goes_on(channel: blocking.Channel) -> None:
    wish = stream_arguments("first", name="client")
    everything = [0, 1, 2, 3, 4, 5]
    assert read(channel, wish, everything) == everything
    assert read(channel, wish, []) == []
    channel.publish(b"6", "amq.topic", "wish.6")
    assert read(channel, wish, [6]) == [6]


def test_a_super_stream_is_read_as_one(channel: blocking.Channel) -> None:
    declared = channel.queue_declare(
        "wishes",
        durable=True,
        arguments={"x-queue-type": "stream", "x-super-stream-partitions": 3},
    )
    assert declared.queue == "wishes"
    for number in range(12):
        channel.publish(b"", "wishes", f"key-{number}")
    wish = stream_arguments("first", name="client")
    with channel.consume("wishes", arguments=wish) as messages:
        places = [(got.stream_name, got.stream_offset) for got in taken(messages, 12)]
    assert len(places) == 12
    assert len(set(places)) == 12
    assert {name for name, _ in places} == {"wishes-0", "wishes-1", "wishes-2"}
    assert channel.queue_delete("wishes") == 12


def test_a_message_of_a_queue_has_no_offset(channel: blocking.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.publish(b"", routing_key=queue)
    message = channel.get(queue)
    assert message is not None
    assert (message.stream_offset, message.stream_name) == (None, None)
    message.ack()


def test_times_have_a_zone_and_whole_seconds() -> None:
    zone = timezone(timedelta(hours=2))
    time = datetime(2026, 1, 2, 3, 4, 5, 999_999, tzinfo=zone)
    assert stream_arguments(time) == {"x-stream-offset": Timestamp(1767315845)}
    with pytest.raises(ValueError, match="zone"):
        stream_arguments(datetime(2026, 1, 2))  # noqa: DTZ001
