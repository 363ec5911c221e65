"""Copies of streams, byte for byte; headers with their types; property bytes that are refused."""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import BasicProperties, Timestamp
from leveret.client.blocking import connect
from leveret.client.blocking.publisher import BulkPublisher
from leveret.client.publish_frames import PublishFrames
from leveret.limits import TABLE_ENTRIES_MAX
from leveret.spark.columns.messages import as_published
from leveret.spark.source import LeveretDataSource
from leveret.spark.write.rows import RawProperties, RowError
from leveret.wire.properties import decode_properties
from leveret.wire.staged import read_staged, without_staged
from support.spark.live_stream import LiveStream
from support.spark.sink_order import sink_for
from support.spark.spark_order import batch_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).parents[2] / "docs/reference/spark/sink.md"

STAGED: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": "s"}


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def entry(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


#: A value of each type that a table may have, in AMQP's encoding (section 4.2.5.5 and errata).
VALUES = {
    b"t": b"t\x02",  # true, as no client of ours writes it
    b"b": b"b\x80",
    b"B": b"B\xff",
    b"s": b"s\x80\x00",
    b"u": b"u\xff\xff",
    b"I": b"I\x80\x00\x00\x00",
    b"i": b"i\xff\xff\xff\xff",
    b"l": b"l\x80" + bytes(7),
    b"L": b"L" + bytes(7) + b"\x05",
    b"f": b"f" + struct.pack(">f", 1.5),
    b"d": b"d" + struct.pack(">d", -0.1),
    b"D": b"D\x02" + struct.pack(">I", 2**32 - 1),
    b"S": b"S" + sized("größe".encode()),
    b"x": b"x" + sized(b"\x00\xff"),
    b"T": b"T" + struct.pack(">Q", 1_700_000_000),
    b"V": b"V",
    b"\xff": b"S" + sized(b"no \xff text"),
}
FLAT = b"".join(entry(name, value) for name, value in VALUES.items())
NESTED = FLAT + entry(
    b"F",
    b"F" + sized(FLAT + entry(b"A", b"A" + sized(b"".join(VALUES.values()) + b"F" + sized(FLAT)))),
)

#: Property bytes as publishers may send them: types, widths, repeated names, empty tables.
SENT = [
    b"\x00\x00",
    b"\x20\x00" + sized(NESTED),
    b"\x20\x00" + sized(entry(b"a", b"I\x00\x00\x00\x01") + entry(b"a", b"S" + sized(b"again"))),
    b"\x20\x00" + bytes(4),
    b"\x20\x00" + sized(entry(b"e", b"F" + bytes(4)) + entry(b"", b"A" + bytes(4))),
    b"\x90\x00\x04text\x01",  # content_type, delivery_mode 1
    BasicProperties(
        headers={}, delivery_mode=2, message_id="id", timestamp=2**63, type="t", app_id="\udcff"
    ).encode(),
]

#: Bytes that are no properties, and what is said of them.
HOSTILE = {
    b"": "no property flags",
    b"\x00": "no property flags",
    b"\x00\x00\x00": "do not match",
    b"\x80\x00": "end",
    b"\x80\x00\x05abc": "do not match",
    b"\x00\x01\x00\x00": "flags",
    b"\x00\x02": "flags",
    b"\x20\x00\xff\xff\xff\xff": "within a value",
    b"\x20\x00" + sized(entry(b"a", b"?")): "unknown type 63",
    b"\x20\x00" + sized(entry(b"a", b"S\x00\x00\x00\x05a")): "within a value",
    b"\x20\x00" + sized(entry(b"a", b"F\xff\xff\xff\xff")): "within a value",
    b"\x20\x00" + sized(entry(b"a", b"V")) + b"!": "do not match",
    b"\x20\x00" + sized(entry(b"", b"V") * 70_000): "more than",
    b"\x00\x40" + b"\x00" * 7: "do not match",
}


def publish_raw(live: LiveStream, sent: Sequence[bytes]) -> None:
    """Publish messages with these property bytes, and their numbers as bodies."""
    with connect(live.uri) as connection:
        publisher = BulkPublisher(connection, 100, 60_000)
        frames = PublishFrames(publisher.channel.number, connection.session.frame_max)
        for number, raw in enumerate(sent):
            key = f"k.{number % 3}"
            whole = frames.publish(live.exchange, key, False, raw, b"%d" % number)
            publisher.send(whole, 1)
        publisher.wait_until_confirmed()


def read(spark: SparkSession, live: LiveStream, **more: str) -> DataFrame:
    return spark.read.format("leveret").options(**live.options, **more).load()


def stored(spark: SparkSession, live: LiveStream) -> list[tuple[bytes, bytes, str]]:
    """Return the property bytes, bodies and keys of a stream, as its chunks have them."""
    wanted = {"columns": "raw_properties,body,routing_key", "transport": "bulk"}
    rows = read(spark, live, **wanted).collect()
    return [(bytes(row[0]), bytes(row[1]), row[2]) for row in rows]


def harmed(raw: bytes) -> st.SearchStrategy[bytes]:
    """Return property bytes with one byte changed, or cut off."""
    places = st.integers(0, len(raw) - 1)
    changed = st.tuples(places, st.integers(0, 255)).map(
        lambda one: raw[: one[0]] + bytes([one[1]]) + raw[one[0] + 1 :]
    )
    return changed | places.map(lambda place: raw[:place])


@pytest.fixture
def copied(stream: LiveStream) -> Iterator[LiveStream]:
    """Another empty stream."""
    live = LiveStream(stream.uri, f"{stream.name}-copy", f"{stream.name}-copy-exchange")
    live.declare()
    yield live
    live.delete()


def test_a_copied_stream_is_the_same_byte_for_byte(
    spark: SparkSession, stream: LiveStream, copied: LiveStream, tmp_path: Path
) -> None:
    """By a query, whose rows are staged; with exchange and key of each message."""
    from pyspark.sql.functions import lit

    sent = SENT * 3
    publish_raw(stream, sent)
    original = stored(spark, stream)
    assert original == [(raw, b"%d" % n, f"k.{n % 3}") for n, raw in enumerate(sent)]
    query = (
        spark.readStream.format("leveret")
        .options(**stream.options, copy="true", startingOffsets="earliest")
        .load()
        .drop("stream")
        .withColumn("exchange", lit(copied.exchange))
        .writeStream.format("leveret")
        .options(uri=copied.uri, copy="true", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert stored(spark, copied) == original


def test_the_example_of_the_page_copies(
    spark: SparkSession, stream: LiveStream, copied: LiveStream
) -> None:
    publish_raw(stream, SENT)
    section = PAGE.read_text().split("\n## Copying a stream\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for there, here in {
        "amqp://guest:guest@localhost:5672/%2F": stream.uri,
        '"orders"': repr(stream.name),
        '"orders-copy"': repr(copied.name),
        "orders.%": "k.%",
    }.items():
        assert there in example
        example = example.replace(there, here)
    exec(compile(example, PAGE.name, "exec"), {"spark": spark})  # noqa: S102  our own page
    original = stored(spark, stream)
    assert [row[:2] for row in stored(spark, copied)] == [row[:2] for row in original]


@pytest.mark.parametrize("dedup", ["staged", "none"])
def test_a_saved_copy_is_the_same_whatever_keeps_it_from_being_written_twice(
    stream: LiveStream, dedup: str
) -> None:
    sent = [*SENT, *SENT]
    rows = pa.record_batch({"body": sent, "raw_properties": pa.array(sent, pa.binary())})
    sink_for(stream.options | {"copy": "true", "dedup": dedup}, rows).save([[rows]])
    assert raw_of(stream, "bulk") == sent
    # The broker has added headers to a delivery; they are removed, and with them an empty table.
    assert raw_of(stream, "amqp") == [without_empty_table(raw) for raw in sent]


def raw_of(live: LiveStream, transport: str) -> list[bytes]:
    """Return the property bytes that the source reads, without a JVM."""
    options = {**live.options, "transport": transport, "columns": "raw_properties"}
    return [row["raw_properties"] for row in batch_rows(options, source=LeveretDataSource)]


def without_empty_table(raw: bytes) -> bytes:
    properties = decode_properties(raw)
    if properties.headers != {}:
        return raw
    properties.headers = None
    return properties.encode()


@pytest.mark.parametrize(("raw", "complaint"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_bytes_that_are_no_properties_are_refused_and_change_nothing(
    stream: LiveStream, raw: bytes, complaint: str
) -> None:
    good, bad = [b"\x00\x00"] * 5000, [b"\x00\x00", raw]
    tasks = [
        [pa.record_batch({"body": rows, "raw_properties": pa.array(rows, pa.binary())})]
        for rows in (good, bad)
    ]
    sink = sink_for(stream.options | {"copy": "true"}, tasks[0][0])
    with pytest.raises(RowError, match=f"^column 'raw_properties': .*{complaint}"):
        sink.save(tasks)
    with stream.channel() as channel:
        assert channel.queue_declare(stream.name, passive=True).message_count == 0


def test_a_row_without_property_bytes_is_refused(stream: LiveStream) -> None:
    rows = pa.record_batch({"body": [b""], "raw_properties": pa.array([None], pa.binary())})
    with pytest.raises(RowError, match="'raw_properties' is null"):
        sink_for(stream.options | {"copy": "true"}, rows).save([[rows]])


def test_a_message_cannot_name_another_destination_for_its_copy(
    stream: LiveStream, copied: LiveStream
) -> None:
    headers = {"a": 1, "x-staged-exchange": copied.exchange, "x-staged-routing-key": "stolen"}
    raw = BasicProperties(headers={**headers, "x-staged-headers": 1}).encode()
    rows = pa.record_batch({"body": [b"", b""], "raw_properties": [raw, b"\x00\x00"]})
    sink_for(stream.options | {"copy": "true"}, rows).save([[rows]])
    assert raw_of(stream, "bulk") == [BasicProperties(headers={"a": 1}).encode(), b"\x00\x00"]
    assert raw_of(copied, "bulk") == []


NAMES = st.sampled_from(["a", "", "é", "x-stream-offset", "x-publisher"]) | st.text(max_size=5)
TABLES = st.dictionaries(
    NAMES,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    ),
    max_size=4,
)
PROPERTIES = st.builds(
    BasicProperties,
    content_type=st.none() | st.text(max_size=5),
    headers=st.none() | TABLES,
    message_id=st.none() | st.text(max_size=5),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
).map(BasicProperties.encode)


@given(PROPERTIES)
def test_what_staging_adds_it_takes_off(raw: bytes) -> None:
    staged = RawProperties(raw).encode(STAGED)
    assert (read_staged(staged).exchange, read_staged(staged).routing_key) == (b"", b"s")
    assert without_staged(staged) == raw
    assert RawProperties(raw).encode({}) == raw


@given(st.binary(max_size=60) | PROPERTIES.flatmap(harmed))
def test_any_bytes_are_refused_or_written_as_they_are(raw: bytes) -> None:
    """What the sink takes the broker can decode, and gives back."""
    try:
        staged = RawProperties(raw).encode(STAGED)
    except RowError:
        return
    assert decode_properties(raw).encode() is not None
    assert without_staged(staged) == raw


def test_a_table_has_room_for_the_headers_of_staging() -> None:
    full = BasicProperties(headers=dict.fromkeys(map(str, range(TABLE_ENTRIES_MAX)))).encode()
    assert RawProperties(full).encode({}) == full
    with pytest.raises(RowError, match=f"more than {TABLE_ENTRIES_MAX} entries"):
        RawProperties(full).encode(STAGED)
    less = dict.fromkeys(map(str, range(TABLE_ENTRIES_MAX - len(STAGED))))
    raw = BasicProperties(headers=less).encode()
    assert without_staged(RawProperties(raw).encode(STAGED)) == raw


# -- headers with their types ----------------------------------------------------------------------


def typed_headers(spark: SparkSession, live: LiveStream) -> list[Any]:
    rows = read(spark, live, columns="headers_typed").collect()
    return [row.headers_typed.toPython() for row in rows]


FLAT_VALUES: dict[str, object] = {
    "t": True,
    "b": -128,
    "B": 255,
    "s": -(2**15),
    "u": 2**16 - 1,
    "I": -(2**31),
    "i": 2**32 - 1,
    "l": -(2**63),
    "L": 5,
    "f": 1.5,
    "d": -0.1,
    "D": Decimal(2**32 - 1) / 100,
    "S": "größe",
    "x": b"\x00\xff",
    "T": dt.datetime.fromtimestamp(1_700_000_000, dt.UTC),
    "V": None,
    "\\xff": b"no \xff text",
}


def test_headers_keep_their_types(
    spark: SparkSession, stream: LiveStream, copied: LiveStream
) -> None:
    long: dict[str, object] = {f"name {n}": n for n in range(300)} | {"list": [7] * 300}
    rare = BasicProperties(headers={"T": Timestamp(2**63), "D": Decimal("1E-200"), "s": "x" * 64})
    more = [BasicProperties(headers=long).encode(), rare.encode()]
    publish_raw(stream, [SENT[1], SENT[2], SENT[0], *more])
    array = [*FLAT_VALUES.values(), FLAT_VALUES]
    nested = {**FLAT_VALUES, "F": {**FLAT_VALUES, "A": array}}
    unlike = {"T": None, "D": 1e-200, "s": "x" * 64}
    assert typed_headers(spark, stream) == [nested, {"a": 1}, {}, long, unlike]
    rows = read(spark, stream, columns="headers_typed,offset,body")
    found = rows.selectExpr(
        "variant_get(headers_typed, '$.F.A[17].D', 'decimal(10,2)') AS decimal",
        "schema_of_variant(headers_typed:F.T) AS time",
        "variant_get(headers_typed, '$.list[299]', 'int') + "
        "variant_get(headers_typed, '$[\"name 299\"]', 'int') AS last",
    ).collect()
    assert (found[0].decimal, found[0].time) == (Decimal("42949672.95"), "TIMESTAMP")
    assert found[3].last == 306
    rows.orderBy("offset").coalesce(1).write.format("leveret").mode("append").options(
        **copied.options
    ).save()
    assert typed_headers(spark, copied) == typed_headers(spark, stream)
    (raw, _, _), *_ = stored(spark, copied)
    written = decode_properties(raw).headers
    assert written is not None
    assert (written["T"], written["x"], written["D"]) == (
        Timestamp(1_700_000_000),
        b"\x00\xff",
        Decimal("42949672.95"),
    )


@pytest.mark.parametrize(
    ("variant", "complaint"),
    [
        ("parse_json('[1]')", "holds a variant that is no object"),
        ("to_variant_object(named_struct('d', DATE'2026-01-01'))", "cannot contain: date"),
        ("to_variant_object(named_struct('d', -1.5BD))", "decimal -1.5"),
    ],
)
def test_variants_that_are_no_headers_are_refused(
    spark: SparkSession, stream: LiveStream, variant: str, complaint: str
) -> None:
    rows = spark.range(1).selectExpr("'' AS body", f"{variant} AS headers_typed")
    with pytest.raises(Exception, match=complaint):
        rows.write.format("leveret").mode("append").options(**stream.options).save()


def test_deliveries_lose_the_headers_that_the_broker_added() -> None:
    added: dict[str, object] = {"x-stream-offset": 5, "x-stream-timestamp": 1, "x-stream-name": "s"}
    for raw in SENT:
        properties = decode_properties(raw)
        if properties.headers is not None and raw != SENT[1] and raw != SENT[2]:
            properties.headers = {**properties.headers, **added}
            assert as_published(properties.encode()) == without_empty_table(raw)
    assert as_published(BasicProperties(headers=added).encode()) == b"\x00\x00"
    assert as_published(SENT[1]) == SENT[1]
