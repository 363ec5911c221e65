"""The archive: every message once, whatever was lost of the last run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.client import BasicProperties
from leveret.pipelines import archive
from leveret.pipelines.archive.job import RunOptions
from leveret.pipelines.archive.measure import archive_size, oldest_unarchived
from leveret.pipelines.archive.result import Measured
from leveret.pipelines.lakes import TableSize
from leveret.pipelines.source import read_archive
from support.brokers.brokers import Broker
from support.spark.live_stream import LiveStream, Sent


def archived(spark: SparkSession, path: Path) -> list[tuple[int, bytes]]:
    rows = read_archive(spark, path).orderBy("offset").collect()
    return [(row["offset"], row["body"]) for row in rows]


def test_archiving_again_adds_what_is_new_and_only_that(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    bodies = stream.publish_numbers(0, 25)
    page = tmp_path.with_suffix(".html")
    result = archive(
        spark, stream.uri, stream.name, tmp_path, max_offsets_per_trigger=10, html_path=page
    )
    assert (result.records, result.batches, result.next_offset) == (25, 3, 25)
    assert [step.records for step in result.steps] == [10, 10, 5]
    assert f"leveret pipeline archive {stream.name} " in page.read_text(encoding="utf-8")
    assert result.body_bytes == sum(map(len, bodies))
    assert result.lag == {stream.name: 0}
    files = [file.stat().st_size for file in tmp_path.rglob("*.parquet")]
    whole = TableSize(len(files), sum(files))
    assert result.measured == Measured(whole, whole, None)
    again = archive(spark, stream.uri, stream.name, tmp_path, html_path=page)
    assert again.steps == ()
    assert (again.records, again.batches, again.next_offset) == (0, 0, 25)
    assert again.measured == Measured(whole, TableSize(), None)
    bodies += stream.publish_numbers(25, 30)
    more = archive(spark, stream.uri, stream.name, tmp_path)
    assert (more.records, more.batches, more.next_offset) == (5, 1, 30)
    assert more.first_offsets == {stream.name: 25}
    assert archived(spark, tmp_path) == list(enumerate(bodies))


def test_the_oldest_message_that_is_not_archived_is_known(
    spark: SparkSession, broker: Broker, name: str, tmp_path: Path
) -> None:
    stream = LiveStream(broker.uri, f"{name},eu", f"{name}-exchange")
    stream.declare()
    began = datetime.now(tz=UTC)
    stream.publish_numbers(0, 5)
    job = RunOptions(stream.uri, stream.name, tmp_path)
    oldest = oldest_unarchived(spark, job, {stream.name: 2}, {stream.name: 3})
    rows = spark.read.format("leveret").options(uri=stream.uri, stream=stream.name).load()
    (time,) = (row["timestamp"] for row in rows.where("offset = 2").collect())
    if time is None:  # a broker without times
        assert oldest is None
    else:
        assert oldest is not None
        assert began - timedelta(seconds=1) <= oldest <= datetime.now(tz=UTC)
    assert oldest_unarchived(spark, job, {stream.name: 5}, {stream.name: 0}) is None
    stream.delete()


def test_an_archive_of_many_batches_has_the_size_of_its_files(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    """Spark merges the log of its sink."""
    stream.publish_numbers(0, 3)
    merging = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(merging, "2")
    try:
        archive(spark, stream.uri, stream.name, tmp_path, max_offsets_per_trigger=1)
    finally:
        spark.conf.unset(merging)
    assert list((tmp_path / "_spark_metadata").glob("*.compact"))
    files = [file.stat().st_size for file in tmp_path.rglob("*.parquet")]
    job = RunOptions(stream.uri, stream.name, tmp_path)
    assert archive_size(spark, job) == TableSize(len(files), sum(files))
    assert archive_size(spark, RunOptions(stream.uri, stream.name, tmp_path / "no")) == TableSize()


@pytest.mark.parametrize("sink_knows", [pytest.param(True, marks=pytest.mark.thorough), False])
def test_a_run_that_was_cut_short_repeats_nothing(
    spark: SparkSession, stream: LiveStream, tmp_path: Path, sink_knows: bool
) -> None:
    """A crash before the batch's commit, after or before the sink took note of its files."""
    bodies = stream.publish_numbers(0, 25)
    archive(spark, stream.uri, stream.name, tmp_path, max_offsets_per_trigger=10)
    lost = [*(tmp_path / "_checkpoint" / "commits").glob("*2*")]
    if not sink_knows:
        lost += (tmp_path / "_spark_metadata").glob("*2*")
    assert lost
    for file in lost:
        file.unlink()
    bodies += stream.publish_numbers(25, 30)
    archive(spark, stream.uri, stream.name, tmp_path, max_offsets_per_trigger=10)
    assert archived(spark, tmp_path) == list(enumerate(bodies))


def test_another_checkpoint_is_refused(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    """The sink would skip batches whose numbers it knows: messages would be left out."""
    stream.publish_numbers(0, 3)
    archive(spark, stream.uri, stream.name, tmp_path / "archive")
    with pytest.raises(ValueError, match="is not its checkpoint"):
        archive(spark, stream.uri, stream.name, tmp_path / "archive", checkpoint=tmp_path / "other")


def test_rows_are_filed_by_stream_and_day_with_all_their_columns(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    stamped = BasicProperties(timestamp=1_700_000_000, headers={"a": "b"}, priority=1)
    stream.publish([Sent(b"\x00\xff", "k.l", stamped)])
    archive(spark, stream.uri, stream.name, tmp_path)
    (row,) = read_archive(spark, tmp_path).collect()
    assert (row["stream"], row["body"], row["routing_key"]) == (stream.name, b"\x00\xff", "k.l")
    assert (row["headers"], row["properties"]["priority"]) == ({"a": "b"}, 1)
    by_broker = row["timestamp"] is not None
    day = datetime.now(tz=UTC).date() if by_broker else datetime(2023, 11, 14, tzinfo=UTC).date()
    assert row["date"] == day
    assert (tmp_path / f"stream={stream.name}" / f"date={day}").is_dir()
