"""Filters spare a batch read what cannot match, and nothing that can."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from leveret.spark.options.read import parse_options
from leveret.spark.stream.batch import BatchReader, PrunedBatchReader
from leveret.spark.stream.pruning import pruning_of
from support.spark.memory_stream import STREAMS, MemoryStream
from support.spark.spark_order import batch_rows, make_source

URI = "amqp://localhost"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def long(memory: MemoryStream) -> MemoryStream:
    """Two thousand messages, one a second."""
    memory.append(*(b"%d" % number for number in range(2000)))
    return memory


def read(name: str, *filters: Filter, **options: str) -> list[Any]:
    return batch_rows({"uri": URI, "stream": name, **options}, filters=list(filters))


def spans(stream: MemoryStream) -> tuple[int, int]:
    """Return the first and the last offset that a transport was asked for."""
    return min(start for start, _ in stream.reads), max(end for _, end in stream.reads)


def at(second: float) -> datetime:
    return EPOCH + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)], (5, 9)),
        ([GreaterThan(("offset",), 5), LessThanOrEqual(("offset",), 9)], (6, 10)),
        ([EqualTo(("offset",), 7)], (7, 8)),
        ([In(("offset",), (30, 7, 12))], (7, 31)),
        ([GreaterThanOrEqual(("timestamp",), at(700))], (700, 2000)),
        ([GreaterThan(("timestamp",), at(699.5)), LessThan(("offset",), 1500)], (700, 1500)),
        ([LessThan(("timestamp",), at(950)), GreaterThan(("timestamp",), at(650))], (650, 951)),
        ([EqualTo(("timestamp",), at(800))], (800, 801)),
        ([EqualTo(("timestamp",), at(0))], (0, 1)),
    ],
)
def test_only_what_can_match_is_read(
    long: MemoryStream, name: str, filters: list[Filter], expected: tuple[int, int]
) -> None:
    read(name, *filters)
    assert spans(long) == expected


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("offset",), 7)),
        StringStartsWith(("routing_key",), "a"),
        EqualTo(("properties", "offset"), 7),
        EqualTo(("routing_key",), "k"),
        GreaterThan(("timestamp",), datetime(1970, 1, 2)),  # noqa: DTZ001  as Spark may send it
    ],
)
def test_what_is_not_understood_prunes_nothing(long: MemoryStream, name: str, one: Filter) -> None:
    assert len(read(name, one)) == 2000


def test_no_row_that_matches_is_left_out_when_a_clock_was_set_back(
    long: MemoryStream, name: str
) -> None:
    """The last message bears a time before most of the others."""
    long.messages[1999] = dataclasses.replace(long.messages[1999], timestamp_ms=400_000)
    rows = read(name, LessThan(("timestamp",), at(401)))
    assert 1999 in [row["offset"] for row in rows]
    rows = read(name, LessThan(("timestamp",), at(399)))
    assert len(rows) == 400
    rows = read(name, GreaterThan(("timestamp",), at(1997)))
    assert 1998 in [row["offset"] for row in rows]


def test_what_was_pruned_is_no_loss(long: MemoryStream, name: str) -> None:
    long.truncate(100)
    start = {"startingOffsets": f'{{"{name}": 0}}'}
    assert len(read(name, GreaterThanOrEqual(("offset",), 100), **start)) == 1900


def test_streams_and_partitions_are_pruned(name: str) -> None:
    for number in range(3):
        STREAMS[f"{name}-{number}"] = MemoryStream()
        STREAMS[f"{name}-{number}"].append(b"x")
    partitions = {"uri": URI, "superStream": name}
    cases: list[tuple[list[Filter], list[int]]] = [
        ([EqualTo(("partition",), 1)], [1]),
        ([In(("partition",), (0, 2))], [0, 2]),
        ([In(("stream",), (f"{name}-0", f"{name}-1")), EqualTo(("partition",), 1)], [1]),
        ([EqualTo(("topic",), name)], [0, 1, 2]),
        ([EqualTo(("partition",), 7)], []),
    ]
    for filters, expected in cases:
        found = batch_rows(partitions, filters=filters)
        assert [row["partition"] for row in found] == expected


MOMENTS = st.datetimes(datetime(1980, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(MOMENTS, MOMENTS)
def test_bounds_of_time_hold_every_match(first: datetime, last: datetime) -> None:
    filters: list[Filter] = [GreaterThan(("timestamp",), first), LessThan(("timestamp",), last)]
    found = pruning_of(filters, parse_options({"uri": URI, "stream": "s"}))
    assert found.from_ms is not None
    assert found.until_ms is not None
    assert EPOCH + timedelta(milliseconds=found.from_ms) <= first
    assert EPOCH + timedelta(milliseconds=found.until_ms) >= last


def test_only_the_part_of_spark_that_pushes_gets_a_reader_that_takes_filters(name: str) -> None:
    """Anywhere else Spark refuses such a reader."""
    source = make_source({"uri": URI, "stream": name})
    schema = source.schema()
    names: dict[str, Any] = {"source": source, "schema": schema}
    place = "/pyspark/sql/worker/data_source_pushdown_filters.py"
    exec(compile("reader = source.reader(schema)", place, "exec"), names)  # noqa: S102
    assert isinstance(names["reader"], PrunedBatchReader)
    plain = source.reader(schema)  # type: ignore[arg-type]  # schema() gives a struct
    assert type(plain) is BatchReader
