"""What the client makes of a wish to read a stream, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from leveret.client import BasicProperties, Timestamp, blocking, stream_arguments


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


def read(channel: blocking.Channel, arguments: dict[str, object]) -> list[int | None]:
    """The offsets of what comes; all of it is acked."""
    offsets = []
    with channel.consume("wished", arguments=arguments, inactivity_timeout=0.3) as messages:
        for message in messages:
            message.ack()
            offsets.append(message.stream_offset)
    return offsets


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
        assert read(channel, stream_arguments(start)) == offsets, start  # type: ignore[arg-type]


def test_what_a_consumer_wants(channel: blocking.Channel) -> None:
    def wished(**wish: object) -> list[int | None]:
        return read(channel, stream_arguments("first", **wish))  # type: ignore[arg-type]

    assert wished(filter_values=["low"]) == [0, 1, 2, 3]
    assert wished(filter_values=["none"], match_unfiltered=True) == [4, 5]
    assert wished(routing_keys=["wish.1", "*.5"]) == [1, 5]
    assert wished(headers={"parity": 1}, filter_values=["low"]) == [1, 3]


def test_a_name_goes_on(channel: blocking.Channel) -> None:
    wish = stream_arguments("first", name="client")
    assert read(channel, wish) == [0, 1, 2, 3, 4, 5]
    assert read(channel, wish) == []
    channel.publish(b"6", "amq.topic", "wish.6")
    assert read(channel, wish) == [6]


def test_a_super_stream_is_read_as_one(channel: blocking.Channel) -> None:
    declared = channel.queue_declare(
        "wishes",
        durable=True,
        arguments={"x-queue-type": "stream", "x-super-stream-partitions": 3},
    )
    assert declared.queue == "wishes"
    for number in range(12):
        channel.publish(b"", "wishes", f"key-{number}")
    places = []
    wish = stream_arguments("first", name="client")
    with channel.consume("wishes", arguments=wish, inactivity_timeout=0.3) as messages:
        for message in messages:
            places.append((message.stream_name, message.stream_offset))
            message.ack()
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
