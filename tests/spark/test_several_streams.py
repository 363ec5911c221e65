"""Reads of several streams under Spark's order of calls, without a JVM: which, where, new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from leveret.errors import NotFound
from leveret.spark.options.read import OptionError
from leveret.spark.stream.ranges import DataLossError
from leveret.spark.stream.streams import FRESH_SECONDS
from support.node.pauses import StepPause
from support.spark.memory_stream import STREAMS, MemoryStream
from support.spark.spark_order import Checkpoint, StreamingRun, batch_rows

URI = "amqp://localhost"
Orders = list[MemoryStream]


def made(name: str, count: int) -> MemoryStream:
    STREAMS[name] = MemoryStream()
    STREAMS[name].append(*(b"%d" % number for number in range(count)))
    return STREAMS[name]


@pytest.fixture
def orders() -> Iterator[Orders]:
    """The super stream `orders` of three partitions, and a stream beside it."""
    before = set(STREAMS)
    yield [made("orders-0", 10), made("orders-1", 20), made("orders-2", 30), made("other", 5)]
    for name in set(STREAMS) - before:
        del STREAMS[name]


def super_stream(**more: str) -> dict[str, str]:
    return {"uri": URI, "superStream": "orders", "startingOffsets": "earliest", **more}


def places(rows: list[Any] | None) -> list[tuple[str, int]]:
    return sorted((row["stream"], row["offset"]) for row in rows or [])


def everything(**counts: int) -> list[tuple[str, int]]:
    return sorted((f"orders-{n[1:]}", o) for n, count in counts.items() for o in range(count))


# -- which streams ---------------------------------------------------------------------------------


def test_a_super_stream_is_its_partitions_by_number(orders: Orders) -> None:
    rows = batch_rows({"uri": URI, "superStream": "orders"})
    assert places(rows) == everything(p0=10, p1=20, p2=30)
    assert {(row["stream"], row["partition"]) for row in rows} == {
        ("orders-0", 0),
        ("orders-1", 1),
        ("orders-2", 2),
    }


def test_a_pattern_matches_whole_names(orders: Orders) -> None:
    rows = batch_rows({"uri": URI, "streamPattern": "orders-[01]|othe"})
    assert places(rows) == everything(p0=10, p1=20)
    assert {row["partition"] for row in rows} == {0}
    assert batch_rows({"uri": URI, "streamPattern": "nothing"}) == []


def test_names_are_read_in_their_order(orders: Orders) -> None:
    rows = batch_rows({"uri": URI, "streams": "other,orders-0"})
    assert [*Counter(row["stream"] for row in rows).items()] == [("other", 5), ("orders-0", 10)]
    with pytest.raises(NotFound):
        batch_rows({"uri": URI, "streams": "other,nobody made this"})


def test_positions_must_name_every_stream(orders: Orders) -> None:
    offsets = '{"orders-0": 9, "orders-1": -2, "orders-2": 29}'
    rows = batch_rows(super_stream(startingOffsets=offsets))
    assert len(rows) == 1 + 20 + 1
    ends = '{"orders-0": 1, "orders-1": 0, "orders-2": -1}'
    assert len(batch_rows(super_stream(endingOffsets=ends))) == 1 + 0 + 30
    with pytest.raises(OptionError, match=r"'startingOffsets': .* missing: orders-1, orders-2"):
        batch_rows(super_stream(startingOffsets='{"orders-0": 9}'))
    with pytest.raises(OptionError, match="'endingOffsets': it names streams that are not read: o"):
        batch_rows(super_stream(endingOffsets=ends[:-1] + ', "other": 1}'))


# -- streaming -------------------------------------------------------------------------------------


def test_the_offsets_name_every_stream(orders: Orders) -> None:
    checkpoint = Checkpoint()
    run = StreamingRun(super_stream(), checkpoint)
    assert places(run.batch()) == everything(p0=10, p1=20, p2=30)
    assert checkpoint.offsets == [{"orders-0": 10, "orders-1": 20, "orders-2": 30}]
    assert run.planner.reportLatestOffset() == checkpoint.offsets[0]
    assert run.batch() is None


def test_a_limit_is_shared_in_proportion(orders: Orders) -> None:
    checkpoint = Checkpoint()
    run = StreamingRun(super_stream(maxOffsetsPerTrigger="12"), checkpoint)
    batches = run.all_batches()
    assert [len(batch) for batch in batches] == [12] * 5
    assert checkpoint.offsets[0] == {"orders-0": 2, "orders-1": 4, "orders-2": 6}
    assert places([row for batch in batches for row in batch]) == everything(p0=10, p1=20, p2=30)


def test_a_new_partition_is_read_from_its_start(orders: Orders) -> None:
    clock = StepPause()
    checkpoint = Checkpoint()
    run = StreamingRun(super_stream(), checkpoint, pause=clock)
    run.all_batches()
    made("orders-3", 7).truncate(2)
    assert run.batch() is None  # the list of streams is believed for a while
    clock.pass_by(FRESH_SECONDS)
    batches = run.all_batches()
    assert checkpoint.offsets[1]["orders-3"] == 2
    assert places(batches[0]) == []
    assert places(batches[1]) == [("orders-3", offset) for offset in range(2, 7)]


def test_a_new_partition_is_found_by_a_restart_and_by_available_now(orders: Orders) -> None:
    checkpoint = Checkpoint()
    StreamingRun(super_stream(), checkpoint).all_batches()
    made("orders-3", 7)
    again = StreamingRun(super_stream(), checkpoint, available_now=True)
    STREAMS["orders-3"].append(b"later")
    assert [len(batch) for batch in again.all_batches()] == [0, 7]


def test_a_batch_over_several_streams_is_replayed_as_it_was(orders: Orders) -> None:
    options = super_stream(maxOffsetsPerTrigger="12", maxRecordsPerPartition="3")
    checkpoint = Checkpoint()
    lost = StreamingRun(options, checkpoint).batch(crash=True)
    orders[0].append(*[b"more"] * 20)
    made("orders-3", 7)
    again = StreamingRun(options, checkpoint)
    assert again.batch() == lost
    rows = [row for batch in again.all_batches() for row in batch]
    assert places((lost or []) + rows) == everything(p0=30, p1=20, p2=30, p3=7)


def test_least_partitions_are_shared(orders: Orders) -> None:
    run = StreamingRun(super_stream(minPartitions="12"), Checkpoint())
    end = run.planner.latestOffset(run.initial, run.limit)
    parts = run.planner.partitions(run.initial, end)
    assert len(parts) >= 12


# -- sets that change ------------------------------------------------------------------------------


def test_a_partition_that_is_gone_is_data_loss(orders: Orders) -> None:
    checkpoint = Checkpoint()
    StreamingRun(super_stream(), checkpoint).all_batches()
    del STREAMS["orders-2"]
    with pytest.raises(DataLossError, match="'orders-2': it is gone"):
        StreamingRun(super_stream(), checkpoint).batch()
    orders[0].append(b"more")
    lenient = StreamingRun(super_stream(failOnDataLoss="false"), checkpoint)
    assert places(lenient.batch()) == [("orders-0", 10)]
    assert checkpoint.offsets[-1] == {"orders-0": 11, "orders-1": 20}


def test_a_stream_that_goes_while_a_batch_is_read_is_data_loss(orders: Orders) -> None:
    options = super_stream(failOnDataLoss="false")
    run = StreamingRun(options, Checkpoint())
    end = run.planner.latestOffset(run.initial, run.limit)
    parts = run.planner.partitions(run.initial, end)
    del STREAMS["orders-2"]
    assert [len([*run.planner.read(part)]) > 0 for part in parts] == [True, True, False]
    strict = StreamingRun(super_stream(), Checkpoint())
    with pytest.raises(NotFound):
        [*strict.planner.read(parts[2])]


def test_a_partition_made_anew_is_noticed(orders: Orders) -> None:
    checkpoint = Checkpoint()
    StreamingRun(super_stream(), checkpoint).all_batches()
    made("orders-1", 3)
    with pytest.raises(DataLossError, match="'orders-1': it ends at 3, but was read up to 20"):
        StreamingRun(super_stream(), checkpoint).batch()
    lenient = StreamingRun(super_stream(failOnDataLoss="false"), checkpoint)
    assert places(lenient.batch()) == [("orders-1", offset) for offset in range(3)]


def test_a_stream_may_be_added_to_the_names(orders: Orders) -> None:
    names = {"uri": URI, "startingOffsets": "earliest"}
    checkpoint = Checkpoint()
    StreamingRun({**names, "streams": "orders-0"}, checkpoint).all_batches()
    more = StreamingRun({**names, "streams": "other,orders-0"}, checkpoint)
    assert [places(batch) for batch in more.all_batches()] == [[], [("other", o) for o in range(5)]]


def test_a_stream_taken_from_the_names_is_data_loss(orders: Orders) -> None:
    names = {"uri": URI, "startingOffsets": "earliest"}
    checkpoint = Checkpoint()
    StreamingRun({**names, "streams": "other,orders-0"}, checkpoint).all_batches()
    with pytest.raises(DataLossError, match="'other': it is gone, or is not read any more"):
        StreamingRun({**names, "streams": "orders-0"}, checkpoint).batch()


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_checkpoint_of_other_streams_is_refused(orders: Orders, is_committed: bool) -> None:
    checkpoint = Checkpoint()
    StreamingRun(super_stream(), checkpoint).batch(crash=not is_committed)
    with pytest.raises(ValueError, match=r"not of stream other: it contains .*orders-0"):
        StreamingRun({"uri": URI, "stream": "other"}, checkpoint).batch()


def test_what_is_wrong_with_the_start_does_not_hinder_a_restart(orders: Orders) -> None:
    options = super_stream(startingOffsets='{"orders-0": 0, "orders-1": 0, "orders-2": 0}')
    checkpoint = Checkpoint()
    StreamingRun(options, checkpoint).all_batches()
    made("orders-3", 7)  # which the option does not name
    again = StreamingRun(options, checkpoint)
    assert [len(batch) for batch in again.all_batches()] == [0, 7]
    with pytest.raises(ValueError, match=r"'startingOffsets': .* missing: orders-3"):
        StreamingRun(options, Checkpoint()).batch()


def test_a_stream_that_comes_back_after_the_target_was_set_stays_in_the_offsets(
    orders: Orders,
) -> None:
    clock = StepPause()
    checkpoint = Checkpoint()
    StreamingRun(super_stream(), checkpoint).all_batches()
    back = STREAMS.pop("orders-2")
    run = StreamingRun(super_stream(), checkpoint, available_now=True, pause=clock)
    STREAMS["orders-2"] = back
    clock.pass_by(FRESH_SECONDS)
    orders[0].append(b"after the target")
    assert run.batch() is None
    assert checkpoint.offsets[-1]["orders-2"] == 30


# -- time ------------------------------------------------------------------------------------------


def test_a_read_starts_and_ends_at_a_moment(orders: Orders) -> None:
    """Message n of each stream was taken n seconds after 1970."""
    rows = batch_rows({"uri": URI, "stream": "other", "startingTimestamp": "1001"})
    assert [row["offset"] for row in rows] == [2, 3, 4]
    window = {"startingTimestamp": "2000", "endingTimestamp": "4000"}
    rows = batch_rows({"uri": URI, "superStream": "orders", **window})
    assert places(rows) == [(f"orders-{n}", o) for n in range(3) for o in (2, 3)]
    each = '{"orders-0": 9000, "orders-1": 19000, "orders-2": 0}'
    rows = batch_rows({"uri": URI, "superStream": "orders", "startingOffsetsByTimestamp": each})
    assert len(rows) == 1 + 1 + 30
    ends = '{"orders-0": 0, "orders-1": 999999, "orders-2": 1000}'
    rows = batch_rows({"uri": URI, "superStream": "orders", "endingOffsetsByTimestamp": ends})
    assert len(rows) == 0 + 20 + 1


def test_a_moment_after_the_last_message_is_an_error_or_the_end(orders: Orders) -> None:
    late = {"uri": URI, "stream": "other", "startingTimestamp": "4001"}
    with pytest.raises(OptionError, match="no message at or after 4001"):
        batch_rows(late)
    with pytest.raises(ValueError, match="no message at or after 4001"):
        StreamingRun(late, Checkpoint()).batch()
    at_end = late | {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_rows(at_end) == []
    run = StreamingRun(at_end, Checkpoint())
    assert run.batch() is None
    orders[3].append(b"new")
    assert places(run.batch()) == [("other", 5)]


# -- limits ----------------------------------------------------------------------------------------


def test_a_batch_waits_for_enough_but_not_for_ever(orders: Orders) -> None:
    clock = StepPause()
    options = super_stream(minOffsetsPerTrigger="5", maxTriggerDelay="30s")
    run = StreamingRun(options, Checkpoint(), pause=clock)
    assert len(run.batch() or []) == 60  # the first does not wait
    orders[0].append(*[b"x"] * 4)
    assert run.batch() is None
    orders[1].append(b"x")
    assert len(run.batch() or []) == 5
    orders[1].append(b"x")
    clock.pass_by(29)
    assert run.batch() is None
    clock.pass_by(1)
    assert len(run.batch() or []) == 1


def test_available_now_does_not_wait_for_enough(orders: Orders) -> None:
    options = super_stream(minOffsetsPerTrigger="1000", maxOffsetsPerTrigger="1000")
    checkpoint = Checkpoint()
    StreamingRun(options, checkpoint, available_now=True).all_batches()
    orders[0].append(b"x")
    batches = StreamingRun(options, checkpoint, available_now=True).all_batches()
    assert [len(batch) for batch in batches] == [1]


def test_bytes_limit_a_batch(orders: Orders) -> None:
    made("orders-0", 0).append(*[bytes(1000)] * 50)
    made("orders-1", 0).append(*[bytes(10)] * 50)
    made("orders-2", 0)
    run = StreamingRun(super_stream(maxBytesPerTrigger="10k"), Checkpoint())
    batches = run.all_batches()
    assert sum(map(len, batches)) == 100
    sizes = [sum(len(row["body"]) for row in batch) for batch in batches]
    assert max(sizes) <= 12_000
    both = super_stream(maxBytesPerTrigger="10k", maxOffsetsPerTrigger="3")
    assert max(len(b) for b in StreamingRun(both, Checkpoint()).all_batches()) <= 3
    tiny = StreamingRun(super_stream(maxBytesPerTrigger="1"), Checkpoint())
    assert len(tiny.batch() or []) == 1
