"""Times of AMQP as datetimes: given where AMQP has one, and got in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import BasicProperties, Timestamp, blocking
from leveret.client.message import MessageContent
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import read_table, write_table

MOMENT = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
SECONDS = int(MOMENT.timestamp())


def content(properties: BasicProperties) -> MessageContent:
    """Return a message's content with these properties."""
    return MessageContent(properties.encode(), b"")


def test_the_timestamp_is_a_datetime_in_and_out() -> None:
    properties = BasicProperties(timestamp=MOMENT)
    assert properties.timestamp == SECONDS
    found = content(properties)
    assert found.timestamp == MOMENT
    assert found.timestamp.tzinfo is UTC
    assert found.properties.timestamp == SECONDS


def test_another_zone_means_the_same_moment() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=-5)))
    assert BasicProperties(timestamp=there).timestamp == SECONDS


def test_parts_of_a_second_are_cut() -> None:
    late = MOMENT + timedelta(microseconds=999_999)
    assert BasicProperties(timestamp=late).timestamp == SECONDS


def test_without_a_timestamp_there_is_none() -> None:
    assert content(BasicProperties()).timestamp is None


def test_a_time_that_no_datetime_holds_is_no_error() -> None:
    """Some publishers count milliseconds."""
    last = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    assert content(BasicProperties(timestamp=last)).timestamp is not None
    for seconds in (last + 1, 2**64 - 1):
        found = content(BasicProperties(timestamp=seconds, headers={"t": Timestamp(seconds)}))
        assert found.timestamp is None
        assert found.properties.timestamp == seconds
        assert found.headers == {"t": Timestamp(seconds)}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (MOMENT.replace(tzinfo=None), "needs a time zone"),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "no time before 1970"),
    ],
)
def test_what_amqp_cannot_say_is_refused(moment: datetime, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        BasicProperties(timestamp=moment)
    with pytest.raises(ValueError, match=f"when: .*{text}"):
        BasicProperties(headers={"when": moment}).encode()


def test_headers_have_datetimes_at_any_depth() -> None:
    sent: dict[str, object] = {"a": MOMENT, "b": [1, {"c": MOMENT}], "d": {"e": "text"}}
    found = content(BasicProperties(headers=sent))
    assert found.headers == sent
    exact = Timestamp(SECONDS)
    assert found.properties.headers == {"a": exact, "b": [1, {"c": exact}], "d": {"e": "text"}}


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.timezones()))  # noqa: DTZ001 -- hypothesis adds the zone
def test_every_time_comes_back_to_its_second(moment: datetime) -> None:
    if moment.timestamp() < 0:
        return
    w = BytesWriter()
    write_table(w, {"t": moment})
    raw = w.getvalue()
    table, _ = read_table(raw, 0, len(raw), len(raw))
    assert table == {"t": Timestamp(int(moment.timestamp() // 1))}


def test_a_broker_keeps_the_time(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        properties = BasicProperties(timestamp=MOMENT, headers={"due": MOMENT})
        channel.publish(b"x", routing_key=queue, properties=properties)
        message = channel.get(queue, no_ack=True)
        assert message is not None
        assert (message.timestamp, message.headers) == (MOMENT, {"due": MOMENT})
