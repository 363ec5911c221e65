"""Readers under Spark's order of calls, without a JVM: limits, restarts, replays, losses."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from leveret.errors import NotFound
from leveret.spark.columns.schema import ROW
from leveret.spark.offsets import from_json, latest_of
from leveret.spark.stream.ranges import DataLossError
from support.spark.memory_stream import STREAMS, MemoryStream
from support.spark.spark_order import Checkpoint, StreamingRun, as_json, batch_rows, make_source

URI = "amqp://localhost"


def bodies(rows: list[Any]) -> list[bytes]:
    return [row["body"] for row in rows]


def fill(stream: MemoryStream, start: int, end: int) -> list[bytes]:
    made = [f"{i}".encode() for i in range(start, end)]
    stream.append(*made)
    return made


# -- batch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", ["1", "7", "100000"])
def test_a_batch_read_gives_every_row_once(memory: MemoryStream, name: str, most: str) -> None:
    made = fill(memory, 0, 30)
    rows = batch_rows({"uri": URI, "stream": name, "maxRecordsPerPartition": most})
    assert bodies(rows) == made
    assert [row["offset"] for row in rows] == list(range(30))


def test_an_empty_stream_is_an_empty_table(memory: MemoryStream, name: str) -> None:
    assert batch_rows({"uri": URI, "stream": name}) == []


def test_a_stream_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound):
        batch_rows({"uri": URI, "stream": "nobody made this"})


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(5, 30)),
        ("{'n': 10}", "latest", range(10, 30)),
        ("earliest", "{'n': 10}", range(5, 10)),
        ("{'n': 10}", "{'n': 11}", range(10, 11)),
        ("{'n': -2}", "{'n': -1}", range(5, 30)),
        ("{'n': 20}", "{'n': 20}", range(0)),
    ],
)
def test_a_batch_starts_and_ends_where_it_is_told_to(
    memory: MemoryStream, name: str, start: str, end: str, expected: range
) -> None:
    fill(memory, 0, 30)
    memory.truncate(5)

    def position(text: str) -> str:
        return text.replace("'n'", f'"{name}"')

    options = {"startingOffsets": position(start), "endingOffsets": position(end)}
    rows = batch_rows({"uri": URI, "stream": name} | options)
    assert [row["offset"] for row in rows] == list(expected)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 10), (25, 35), (31, -1), (35, 40), (20, 10), (5, 4)]
)
def test_a_batch_beyond_what_is_there_is_data_loss(
    memory: MemoryStream, name: str, start: int, end: int
) -> None:
    fill(memory, 0, 30)
    memory.truncate(5)
    options = {
        "uri": URI,
        "stream": name,
        "startingOffsets": f'{{"{name}": {start}}}',
        "endingOffsets": f'{{"{name}": {end}}}',
    }
    with pytest.raises(DataLossError):
        batch_rows(options)
    rows = batch_rows(options | {"failOnDataLoss": "false"})
    assert [row["offset"] for row in rows] == [o for o in range(start, end) if 5 <= o < 30]


def test_a_users_schema_is_what_is_read(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 3)
    schema = StructType([ROW["body"], ROW["offset"]])
    rows = batch_rows({"uri": URI, "stream": name}, schema)
    assert rows[2] == {"body": b"2", "offset": 2}


def test_without_headers_there_is_no_such_column(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 1)
    rows = batch_rows({"uri": URI, "stream": name, "includeHeaders": "false"})
    assert "headers" not in rows[0]


# -- streaming -------------------------------------------------------------------------------------


def options(name: str, **more: str) -> dict[str, str]:
    return {"uri": URI, "stream": name, "startingOffsets": "earliest", **more}


def test_a_query_reads_what_is_there_and_then_what_comes(memory: MemoryStream, name: str) -> None:
    made = fill(memory, 0, 10)
    run = StreamingRun(options(name), Checkpoint())
    assert bodies(run.batch() or []) == made
    assert run.batch() is None
    more = fill(memory, 10, 12)
    assert bodies(run.batch() or []) == more


def test_a_new_query_starts_at_the_latest_by_default(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 10)
    run = StreamingRun({"uri": URI, "stream": name}, Checkpoint())
    assert run.batch() is None
    assert bodies(run.batch() or []) == []
    more = fill(memory, 10, 12)
    assert bodies(run.batch() or []) == more


def test_a_limit_cuts_batches_and_is_ignored_when_spark_says_so(
    memory: MemoryStream, name: str
) -> None:
    fill(memory, 0, 25)
    limited = options(name, maxOffsetsPerTrigger="10")
    assert [len(b) for b in StreamingRun(limited, Checkpoint()).all_batches()] == [10, 10, 5]
    assert len(StreamingRun(limited, Checkpoint()).batch(unlimited=True) or []) == 25


def test_available_now_ends_where_the_stream_ended_at_the_start(
    memory: MemoryStream, name: str
) -> None:
    fill(memory, 0, 25)
    checkpoint = Checkpoint()
    limited = options(name, maxOffsetsPerTrigger="10")
    run = StreamingRun(limited, checkpoint, available_now=True)
    fill(memory, 25, 50)
    assert [len(b) for b in run.all_batches()] == [10, 10, 5]
    again = StreamingRun(limited, checkpoint, available_now=True)
    assert [row["offset"] for b in again.all_batches() for row in b] == list(range(25, 50))


def test_limits_and_restarts_hold_without_admission_control(
    memory: MemoryStream, name: str
) -> None:
    """Before 4.2, Spark passes neither the start of a batch nor a limit."""
    fill(memory, 0, 25)
    checkpoint = Checkpoint()
    limited = options(name, maxOffsetsPerTrigger="10", maxRecordsPerPartition="3")
    run = StreamingRun(limited, checkpoint, admission=False)
    assert [len(b) for b in run.all_batches()] == [10, 10, 5]
    assert [from_json(one).offsets[name] for one in checkpoint.offsets] == [10, 20, 25]
    assert [from_json(latest_of(one) or {}).offsets for one in checkpoint.offsets] == [
        {name: 25}
    ] * 3
    fill(memory, 25, 40)
    lost = StreamingRun(limited, checkpoint, admission=False).batch(crash=True)
    assert [row["offset"] for row in lost or []] == list(range(25, 35))
    again = StreamingRun(limited, checkpoint, admission=False)
    assert again.batch() == lost
    assert [row["offset"] for b in again.all_batches() for row in b] == list(range(35, 40))


def test_a_checkpoint_passes_between_sparks_with_and_without_admission_control(
    memory: MemoryStream, name: str
) -> None:
    checkpoint = Checkpoint()
    found: list[int] = []
    for count, admission in ((0, False), (10, True), (20, False)):
        fill(memory, count, count + 10)
        run = StreamingRun(options(name), checkpoint, admission=admission)
        found += [row["offset"] for b in run.all_batches() for row in b]
        assert run.plan() is False
    assert found == list(range(30))


def test_a_query_from_the_latest_begins_once_without_admission_control(
    memory: MemoryStream, name: str
) -> None:
    """Spark then asks where the query begins only when it has the end of the first batch."""
    fill(memory, 0, 10)
    run = StreamingRun(options(name, startingOffsets="latest"), Checkpoint(), admission=False)
    assert run.plan()
    fill(memory, 10, 15)
    assert run.run_planned() == []
    run.checkpoint.commits += 1
    assert [row["offset"] for row in run.batch() or []] == list(range(10, 15))


def test_a_replayed_batch_is_the_same_batch(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 25)
    checkpoint = Checkpoint()
    small = options(name, maxOffsetsPerTrigger="10", maxRecordsPerPartition="3")
    lost = StreamingRun(small, checkpoint).batch(crash=True)
    fill(memory, 25, 50)
    again = StreamingRun(small, checkpoint)
    assert again.batch() == lost
    assert [len(b) for b in again.all_batches()] == [10] * 4


def test_what_retention_took_is_an_error_or_passed_over(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 10)
    checkpoint = Checkpoint()
    StreamingRun(options(name), checkpoint).all_batches()
    fill(memory, 10, 40)
    memory.truncate(30)
    with pytest.raises(DataLossError, match="the messages 10 to 29 are missing"):
        StreamingRun(options(name), checkpoint).batch()
    lenient = StreamingRun(options(name, failOnDataLoss="false"), checkpoint)
    assert [row["offset"] for row in lenient.batch() or []] == list(range(30, 40))


def test_a_query_that_starts_beyond_the_end_is_data_loss(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 10)
    start = {"startingOffsets": f'{{"{name}": 11}}'}
    with pytest.raises(ValueError, match="it ends at 10, before the starting offset 11"):
        StreamingRun(options(name) | start, Checkpoint()).batch()
    lenient = StreamingRun(options(name, failOnDataLoss="false") | start, Checkpoint())
    assert lenient.batch() is None
    assert bodies(lenient.batch() or []) == []
    made = fill(memory, 10, 12)
    assert bodies(lenient.batch() or []) == made


def test_messages_that_have_gone_count_against_no_limit(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 1000)
    memory.truncate(990)
    lenient = {"failOnDataLoss": "false", "maxOffsetsPerTrigger": "4"}
    start = {"startingOffsets": f'{{"{name}": 0}}'}
    run = StreamingRun(options(name, **lenient) | start, Checkpoint())
    assert [len(b) for b in run.all_batches()] == [4, 4, 2]


def test_a_stream_made_anew_is_noticed(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 10)
    checkpoint = Checkpoint()
    StreamingRun(options(name), checkpoint).all_batches()
    STREAMS[name] = MemoryStream()
    assert StreamingRun(options(name), checkpoint).batch() is None  # empty: nobody can tell yet
    made = fill(STREAMS[name], 0, 4)
    with pytest.raises(DataLossError, match="ends at 4, but was read up to 10"):
        StreamingRun(options(name), checkpoint).batch()
    lenient = StreamingRun(options(name, failOnDataLoss="false"), checkpoint)
    assert bodies(lenient.batch() or []) == made
    assert lenient.batch() is None


def test_the_checkpoint_of_another_stream_is_refused(memory: MemoryStream, name: str) -> None:
    run = StreamingRun(options(name), Checkpoint(offsets=[{"other": 3}], commits=1))
    with pytest.raises(ValueError, match="is not of stream"):
        run.batch()


def test_the_latest_offset_is_reported(memory: MemoryStream, name: str) -> None:
    fill(memory, 0, 25)
    run = StreamingRun(options(name, maxOffsetsPerTrigger="10"), Checkpoint())
    assert run.planner.reportLatestOffset() is None
    run.batch()
    assert run.planner.reportLatestOffset() == {name: 25}


def test_the_source_says_its_name_and_columns(name: str) -> None:
    source = make_source({"uri": URI, "stream": name})
    assert source.name() == "leveret"
    assert as_json({name: 1}) == {name: 1}
