"""A range is read whole: gaps are answered for, interruptions are ridden out."""

from __future__ import annotations

import dataclasses
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.spark.columns.schema import ROW
from leveret.spark.options.read import Options, parse_options
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.stream.ranges import DataLossError, read_range
from leveret.spark.transport import Interrupted
from support.node.pauses import StepPause
from support.spark.memory_stream import STREAMS, MemoryStream, MemoryTransport

OPTIONS = parse_options({"uri": "amqp://localhost", "stream": "ranges"})
LENIENT = dataclasses.replace(OPTIONS, fail_on_data_loss=False)


def read(
    stream: MemoryStream, start: int, end: int, options: Options = OPTIONS
) -> tuple[list[int], list[float]]:
    """Return the offsets that a read yields and the waits that it made."""
    STREAMS["ranges"] = stream
    pause = StepPause()
    transport = MemoryTransport(options, "ranges", ROW)
    whole = OffsetRange("ranges", start, end)
    batches = read_range(transport, options, whole, pause)
    return [o for batch in batches for o in batch.column("offset").to_pylist()], pause.waits


def filled(count: int) -> MemoryStream:
    stream = MemoryStream()
    stream.append(*(str(i).encode() for i in range(count)))
    return stream


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_range_comes_whole_and_in_order(start: int, end: int) -> None:
    assert read(filled(40), start, end) == (list(range(start, end)), [])


@given(st.lists(st.integers(0, 3), max_size=8))
def test_interruptions_lose_and_repeat_nothing(interruptions: list[int]) -> None:
    stream = filled(40)
    stream.interruptions = interruptions
    options = dataclasses.replace(OPTIONS, num_retries=len(interruptions))
    assert read(stream, 3, 40, options)[0] == list(range(3, 40))


def test_a_read_goes_on_from_the_last_offset_that_came() -> None:
    stream = filled(40)
    stream.interruptions = [1]
    read(stream, 0, 40)
    assert stream.reads == [(0, 40), (7, 40)]


def test_interruptions_in_a_row_are_counted_and_waits_grow() -> None:
    stream = filled(10)
    limited = dataclasses.replace(OPTIONS, num_retries=3)
    stream.interruptions = [0, 0, 0]
    assert read(stream, 0, 10, limited)[1] == [0.5, 1.0, 2.0]
    stream.interruptions = [0, 0, 0, 0]
    with pytest.raises(Interrupted):
        read(stream, 0, 10, limited)


def test_waits_are_bounded() -> None:
    stream = filled(10)
    stream.interruptions = [0] * 8
    assert read(stream, 0, 10)[1][-3:] == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (range(5), "the messages 0 to 4 are missing"),
        (range(10, 12), "the messages 10 to 11 are missing"),
        (range(15, 20), "the messages 15 to 19 are missing"),
        (range(20), "the messages 0 to 19 are missing"),
    ],
)
def test_missing_messages_are_an_error_or_passed_over(
    gone: range, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream = filled(20)
    for offset in gone:
        del stream.messages[offset]
    with pytest.raises(DataLossError, match=text):
        read(stream, 0, 20)
    with caplog.at_level(logging.WARNING, "leveret.spark"):
        assert read(stream, 0, 20, LENIENT)[0] == [o for o in range(20) if o not in gone]
    assert text in caplog.text


def test_offsets_that_never_were_messages_are_no_loss() -> None:
    """RabbitMQ stores notes of its own in a stream, under an offset each."""
    stream = filled(20)
    stream.left_out = {0, 10, 19}
    for offset in stream.left_out:
        del stream.messages[offset]
    assert read(stream, 0, 20)[0] == [o for o in range(20) if o not in stream.left_out]


def test_a_broker_that_stays_away_is_no_data_loss() -> None:
    stream = filled(10)
    stream.interruptions = [0] * 100
    with pytest.raises(Interrupted):
        read(stream, 0, 10, LENIENT)
