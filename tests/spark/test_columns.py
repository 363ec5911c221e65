"""Messages to rows: bodies byte for byte, headers and properties as text, nothing stops a job."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import BasicProperties, Timestamp
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.schema import ROW
from support.spark.memory_stream import Delivery


def row(properties: BasicProperties, body: bytes = b"") -> dict[str, object]:
    """Return the row of one message."""
    batch = BatchBuilder("s", ROW).build(7, [Delivery(body, properties=properties)])
    found: dict[str, object] = batch.to_pylist()[0]
    return found


def test_a_message_with_everything() -> None:
    properties = BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"x-stream-offset": 7, "x-stream-timestamp": 1_700_000_000_123, "level": "info"},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="u",
        app_id="a",
        cluster_id="",
    )
    message = Delivery(b"\x00\xff", exchange="logs", routing_key="a.b", properties=properties)
    assert BatchBuilder("orders", ROW).build(7, [message]).to_pylist() == [
        {
            "stream": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "exchange": "logs",
            "routing_key": "a.b",
            "headers": [("level", "info")],
            "properties": {
                "content_type": "text/plain",
                "content_encoding": "gzip",
                "delivery_mode": 2,
                "priority": 9,
                "correlation_id": "c",
                "reply_to": "r",
                "expiration": "60000",
                "message_id": "m",
                "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
                "type": "t",
                "user_id": "u",
                "app_id": "a",
                "cluster_id": "",
            },
            "redelivered": False,
            "delivery_count": None,
            "body": b"\x00\xff",
        }
    ]


def test_a_message_with_nothing() -> None:
    found = row(BasicProperties())
    assert found["headers"] == []
    assert found["timestamp"] is None
    properties = found["properties"]
    assert isinstance(properties, dict)
    assert set(properties.values()) == {None}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (-(2**63), "-9223372036854775808"),
        (1.5, "1.5"),
        (Decimal("12.30"), "12.30"),
        (Timestamp(1_700_000_000), "1700000000"),
        (b"caf\xc3\xa9", "café"),
        (b"\xff\x00", "\\xff\x00"),
        (None, None),
        (["a", 1, None, b"\xff"], '["a", 1, null, "\\\\xff"]'),
        ({"a": {"b": True, "t": Timestamp(5)}}, '{"a": {"b": true, "t": "5"}}'),
    ],
)
def test_headers_as_text(value: object, text: str | None) -> None:
    assert row(BasicProperties(headers={"h": value}))["headers"] == [("h", text)]


def test_a_delivery_count_is_a_column() -> None:
    found = row(BasicProperties(headers={"x-delivery-count": 3}))
    assert found["delivery_count"] == 3
    assert row(BasicProperties(headers={"x-delivery-count": "3"}))["delivery_count"] is None


def test_text_that_is_not_utf8_is_escaped_and_stops_nothing() -> None:
    """A property may hold any bytes; RabbitMQ and Leveret pass them on."""
    properties = BasicProperties(correlation_id="caf\udce9")
    found = row(properties)["properties"]
    assert isinstance(found, dict)
    assert found["correlation_id"] == "caf\\xe9"


@pytest.mark.parametrize("seconds", [253_402_300_800, 1_700_000_000_000, 2**64 - 1])
def test_a_moment_beyond_the_year_9999_is_none(seconds: int) -> None:
    """Some publishers put milliseconds where seconds belong."""
    found = row(BasicProperties(timestamp=seconds, headers={"x-stream-timestamp": 2**63 - 1}))
    assert isinstance(found["properties"], dict)
    assert found["properties"]["timestamp"] is None
    assert found["timestamp"] is None


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_bodies_come_byte_for_byte(bodies: list[bytes]) -> None:
    batch = BatchBuilder("s", ROW).build(0, [Delivery(body) for body in bodies])
    assert batch.column("body").to_pylist() == bodies
    assert batch.column("offset").to_pylist() == list(range(len(bodies)))


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary(),
        max_size=5,
    )
)
def test_any_headers_come_with_all_their_names(headers: dict[str, object]) -> None:
    found = row(BasicProperties(headers=headers))["headers"]
    assert isinstance(found, list)
    assert [name for name, _ in found] == list(headers)
