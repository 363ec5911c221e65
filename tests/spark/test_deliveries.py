"""Deliveries as columns make the same batches as messages one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from leveret.client import BasicProperties, Timestamp
from leveret.client.blocking import connect
from leveret.spark.columns.deliveries import DeliveryBuilder
from leveret.spark.columns.messages import BatchBuilder
from leveret.spark.columns.schema import KAFKA_HEADERS, OURS, PROPERTIES, ROW
from leveret.spark.transport import Piece
from leveret.wire.buffer import BytesWriter
from leveret.wire.content.deliveries import DeliveryColumns, DeliveryScanner
from leveret.wire.frames import FrameReader, write_body, write_header, write_method
from leveret.wire.methods.basic import BasicDeliver
from support.spark.live_stream import LiveStream, Sent
from support.spark.memory_stream import Delivery


def columns_of(messages: Sequence[Delivery], with_properties: bool = True) -> DeliveryColumns:
    """Return messages as they are when they have come from a broker."""
    w = BytesWriter()
    for tag, message in enumerate(messages, 1):
        deliver = BasicDeliver(
            consumer_tag="c",
            delivery_tag=tag,
            redelivered=message.redelivered,
            exchange=message.exchange,
            routing_key=message.routing_key,
        )
        write_method(w, 1, deliver)
        write_header(w, 1, 60, len(message.body), message.properties.encode())
        write_body(w, 1, message.body, 4096)
    scanner = DeliveryScanner(1, with_properties)
    reader = FrameReader()
    reader.feed(w.getvalue())
    scanner.take(reader)
    assert scanner.count == len(messages)
    return scanner.columns()


def in_stream(messages: Sequence[Delivery], offsets: Sequence[int]) -> list[Delivery]:
    """Return messages with the headers that a broker puts on those of a stream."""
    both = zip(offsets, messages, strict=True)
    return [message.on_the_wire(**{"x-stream-offset": offset}) for offset, message in both]


SHORT = st.none() | st.text(max_size=8) | st.just("\udcff")
VALUES: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5)
)
PROPERTY_SETS = st.builds(
    BasicProperties,
    content_type=SHORT,
    headers=st.none() | st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    delivery_mode=st.none() | st.integers(1, 2),
    priority=st.none() | st.integers(0, 255),
    message_id=SHORT,
    timestamp=st.none() | st.integers(0, 2**63 - 1),
    app_id=SHORT,
)
MESSAGES = st.builds(
    Delivery,
    st.binary(max_size=50),
    st.text(max_size=5),
    st.text(max_size=5),
    PROPERTY_SETS,
    st.booleans(),
    st.none() | st.integers(0, 2**62),
)
SCHEMAS = st.lists(
    st.sampled_from([*OURS.fields, KAFKA_HEADERS]), min_size=1, unique_by=lambda f: f.name
).map(StructType)


@given(st.lists(MESSAGES, max_size=30), SCHEMAS, st.integers(0, 2**40))
def test_the_rows_are_those_of_messages_one_by_one(
    messages: list[Delivery], schema: StructType, first: int
) -> None:
    sent = in_stream(messages, range(first, first + len(messages)))
    expected = BatchBuilder("s", schema, 3).build(first, sent)
    builder = DeliveryBuilder("s", schema, 3)
    found = builder.build(columns_of(sent, builder.with_properties))
    found.validate(full=True)
    assert found.equals(expected)


@pytest.mark.parametrize("kinds", [1, 4, 1000])
def test_many_rows_of_few_or_many_kinds(kinds: int) -> None:
    messages = [
        Delivery(
            b"%d" % n,
            "x",
            f"key.{n % 3}",
            BasicProperties(
                content_type="text/plain",
                headers={"kind": n % 4, "moment": Timestamp(n % 4)},
                message_id=str(n % kinds),
            ),
            timestamp_ms=1_700_000_000_000 + n,
        )
        for n in range(1000)
    ]
    sent = in_stream(messages, range(1000))
    schema = StructType([*ROW.fields[:7], StructField("properties", PROPERTIES)])
    expected = BatchBuilder("s", schema).build(0, sent)
    assert DeliveryBuilder("s", schema).build(columns_of(sent)).equals(expected)


def pieces(offsets: list[int], start: int, end: int) -> list[tuple[int, int, list[int]]]:
    sent = in_stream([Delivery(b"%d" % offset) for offset in offsets], offsets)
    builder = DeliveryBuilder("s", StructType([ROW["offset"], ROW["body"]]))
    found: list[Piece] = [*builder.pieces(columns_of(sent), start, end)]
    for piece in found:
        rows = piece.batch.to_pylist()
        assert all(row["body"] == b"%d" % row["offset"] for row in rows)
    return [(p.start, p.end, p.batch.column("offset").to_pylist()) for p in found]


def test_a_piece_is_a_run_of_offsets_within_the_range() -> None:
    assert pieces([0, 1, 2, 5, 6, 9], 1, 9) == [(1, 3, [1, 2]), (5, 7, [5, 6])]
    assert pieces([4, 5], 0, 100) == [(4, 6, [4, 5])]
    assert pieces([4, 5], 6, 100) == []
    assert pieces([], 0, 100) == []


def test_an_offset_that_comes_again_is_dropped() -> None:
    assert pieces([3, 4, 3, 4, 5, 1, 7], 0, 100) == [(3, 6, [3, 4, 5]), (7, 8, [7])]


def test_messages_of_no_stream_are_refused() -> None:
    builder = DeliveryBuilder("s", ROW)
    with pytest.raises(ValueError, match="the queue is not a stream"):
        [*builder.pieces(columns_of([Delivery(b"x")]), 0, 1)]


def test_a_brokers_messages_are_the_same_by_both_ways(stream: LiveStream) -> None:
    """The general way is the client's, a message at a time."""
    stream.publish(
        Sent(
            b"%d" % n,
            f"key.{n % 7}",
            BasicProperties(headers={"n": n % 5}, message_id=str(n), delivery_mode=2),
        )
        for n in range(300)
    )
    wish: dict[str, object] = {"x-stream-offset": "first"}
    with connect(stream.uri) as connection:
        with connection.channel() as channel:
            channel.qos(1000)
            consumer = channel.consume(stream.name, arguments=wish, inactivity_timeout=60)
            expected = BatchBuilder("s", ROW).build(0, [next(consumer) for _ in range(300)])
        with connection.channel() as channel:
            channel.qos(1000)
            fast = channel.consume_columns(stream.name, arguments=wish)
            while fast.count < 300:
                assert fast.wait(fast.delivery_tag, 60)
            assert fast.last_offset == 299
            with pytest.raises(ValueError, match="already has a column consumer"):
                channel.consume_columns(stream.name)
            found = DeliveryBuilder("s", ROW).build(fast.take())
    assert found.equals(expected)
