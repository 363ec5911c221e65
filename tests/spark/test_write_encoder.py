"""The encoder writes what the client library writes for the same messages, one by one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import BasicProperties
from leveret.client.publish_frames import PublishFrames
from leveret.client.session.output import ClientOutput, publish_frame
from leveret.limits import FRAME_BYTES_MIN
from leveret.spark.write.encoder import (
    SPARK_WRITE_PIECE_BYTES,
    SPARK_WRITE_PIECE_RECORDS,
    Encoder,
    Envelope,
)
from leveret.spark.write.rows import RowError
from leveret.spark.write.schema import Layout
from leveret.wire.methods.basic import BasicPublish

CHANNEL = 3
UTC = dt.UTC
HEADERS = pa.map_(pa.string(), pa.string())
PROPERTIES = pa.struct(
    [
        ("content_type", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("delivery_mode", pa.int32()),
        ("app_id", pa.string()),
        ("priority", pa.int32()),
    ]
)
TYPES: dict[str, pa.DataType] = {
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "stream": pa.string(),
    "headers": HEADERS,
    "properties": PROPERTIES,
}

#: Few of each, so that rows share some and not all.
NAMES = st.sampled_from(["", "orders", "größe", "n" * 255])
TEXTS = st.none() | st.sampled_from(["", "a", "text ✓"])
BODIES = st.binary(max_size=40) | st.sampled_from(
    [b"x" * size for size in (FRAME_BYTES_MIN - 9, FRAME_BYTES_MIN - 8, FRAME_BYTES_MIN - 7, 9000)]
)
MOMENTS = st.none() | st.datetimes(
    dt.datetime(1970, 1, 1),  # noqa: DTZ001  made aware by `timezones`
    dt.datetime(9999, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
ROWS = st.fixed_dictionaries(
    {
        "body": BODIES,
        "exchange": NAMES,
        "routing_key": st.none() | NAMES,
        "stream": NAMES,
        "headers": st.none()
        | st.dictionaries(st.sampled_from(["k", "x-publisher", "é"]), TEXTS, max_size=3),
        "properties": st.none()
        | st.fixed_dictionaries(
            {
                "content_type": TEXTS,
                "timestamp": MOMENTS,
                "delivery_mode": st.none() | st.integers(1, 2),
                "app_id": TEXTS,
                "priority": st.none() | st.integers(0, 255),
            }
        ),
    }
)
LAYOUTS = st.builds(
    Layout,
    exchange=st.none() | st.just("e"),
    routing_key=st.none() | st.just("k"),
    by_stream=st.just(False),
    headers=st.booleans(),
    properties=st.booleans(),
    publishing_id=st.just(False),
) | st.builds(Layout, st.just(""), st.none(), st.just(True), st.booleans(), st.booleans())
ENVELOPES = st.builds(
    Envelope,
    mandatory=st.booleans(),
    staging_queue=st.none() | st.just("staging"),
    publisher=st.none() | st.just("query-0"),
)


def batch_of(rows: list[dict[str, Any]], body: pa.DataType) -> pa.RecordBatch:
    """Return rows as Spark hands them over, in the middle of a larger batch."""
    bodies = [row["body"] for row in rows]
    columns = {"body": pa.array([b"before", *bodies, b"after"], body)}
    for name, kind in TYPES.items():
        values = [row[name] for row in rows]
        if name == "headers":
            values = [None if value is None else list(value.items()) for value in values]
        columns[name] = pa.array([values[0], *values, values[-1]], kind)
    return pa.RecordBatch.from_pydict(columns).slice(1, len(rows))


def one_by_one(
    rows: list[dict[str, Any]], layout: Layout, envelope: Envelope, ids: list[int]
) -> bytes:
    """Return what a channel of the client writes for the rows."""
    output = ClientOutput()
    output.frame_max = FRAME_BYTES_MIN
    for row, number in zip(rows, ids, strict=True):
        exchange = row["exchange"] if layout.exchange is None else layout.exchange
        key = (row["routing_key"] or "") if layout.routing_key is None else layout.routing_key
        if layout.by_stream:
            key = row["stream"]
        headers: dict[str, object] | None = None
        if layout.headers and row["headers"] is not None:
            headers = {k: v for k, v in row["headers"].items() if k != "x-publisher"}
        said = dict(row["properties"] or {}) if layout.properties else {}
        if said.get("timestamp") is not None:
            said["timestamp"] = int(said["timestamp"].timestamp() // 1)
        if said.get("delivery_mode") is None:
            said["delivery_mode"] = 2
        if envelope.staging_queue is not None:
            staged = {"x-staged-exchange": exchange, "x-staged-routing-key": key}
            headers = {**(headers or {}), **staged}
            exchange, key = "", envelope.staging_queue
        if envelope.publisher is not None:
            numbered = {"x-publisher": envelope.publisher, "x-publishing-id": number}
            headers = {**(headers or {}), **numbered}
        method = BasicPublish(exchange=exchange, routing_key=key, mandatory=envelope.mandatory)
        properties = BasicProperties(headers=headers, **said).encode()
        output.publish(CHANNEL, publish_frame(CHANNEL, method), properties, row["body"])
    return output.take()


@given(
    st.lists(ROWS, min_size=1, max_size=12),
    LAYOUTS,
    ENVELOPES,
    st.integers(0, 2**40) | st.integers(2**31 - 8, 2**31 + 1),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_the_bytes_are_the_clients_own(
    rows: list[dict[str, Any]], layout: Layout, envelope: Envelope, first: int, body: pa.DataType
) -> None:
    batch = batch_of(rows, body)
    ids = np.arange(first, first + len(rows), dtype=np.int64)
    encoder = Encoder(layout, PublishFrames(CHANNEL, FRAME_BYTES_MIN), envelope)
    expected = one_by_one(rows, layout, envelope, ids.tolist())
    for _ in range(2):  # what was kept serves again
        pieces = list(encoder.encode(batch, ids if envelope.publisher is not None else None))
        assert b"".join(piece.frames for piece in pieces) == expected
        assert sum(piece.count for piece in pieces) == len(rows)


CONSTANT = Layout("e", "k", False, False, False, False)


def encoded(batch: pa.RecordBatch, layout: Layout = CONSTANT) -> list[int]:
    """Return how many rows each piece has."""
    encoder = Encoder(layout, PublishFrames(CHANNEL, 131_072), Envelope(mandatory=True))
    return [piece.count for piece in encoder.encode(batch)]


def bodies(*values: bytes | str | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": pa.array(values)})


def test_a_batch_is_cut_by_rows_and_by_bytes() -> None:
    most = SPARK_WRITE_PIECE_RECORDS
    assert encoded(bodies(*[b""] * (2 * most + 1))) == [most, most, 1]
    half = b"x" * (SPARK_WRITE_PIECE_BYTES // 2)
    assert encoded(bodies(half, half, half, half * 5, half, b"")) == [2, 1, 1, 2]
    assert encoded(bodies(b"").slice(1)) == []


def test_text_is_a_body_too() -> None:
    encoder = Encoder(CONSTANT, PublishFrames(1, 131_072), Envelope(mandatory=False))
    assert "größe".encode() in next(encoder.encode(bodies("größe"))).frames


@pytest.mark.parametrize(
    ("columns", "layout", "text"),
    [
        ({"body": pa.array([None], pa.binary())}, CONSTANT, "column 'body' is null"),
        ({"exchange": None}, Layout(None, "k", False, False, False, False), "'exchange' is null"),
        ({"stream": None}, Layout("", None, True, False, False, False), "'stream' is null"),
        (
            {"routing_key": "k" * 256},
            Layout("e", None, False, False, False, False),
            "maximum is 255 bytes",
        ),
        (
            {"properties": {"priority": 256}},
            Layout("e", "k", False, False, True, False),
            "headers or properties: .*256",
        ),
        (
            {"properties": {"timestamp": dt.datetime(1969, 12, 31, tzinfo=UTC)}},
            Layout("e", "k", False, False, True, False),
            "no time before 1970",
        ),
        (
            {"headers": [("k" * 300, "v")]},
            Layout("e", "k", False, True, False, False),
            "headers or properties: .* 255 bytes",
        ),
        (
            {"headers": [("k", "v" * 131_072)]},
            Layout("e", "k", False, True, False, False),
            "bytes of properties; a frame holds 131072",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_is_told(
    columns: dict[str, Any], layout: Layout, text: str
) -> None:
    made = {"body": pa.array([b""])}
    for name, value in columns.items():
        made[name] = value if name == "body" else pa.array([value], TYPES[name])
    with pytest.raises(RowError, match=text):
        encoded(pa.RecordBatch.from_pydict(made), layout)
