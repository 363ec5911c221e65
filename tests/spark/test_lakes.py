"""An archive as a Delta or Iceberg table: each message once, and every batch one commit."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage

from leveret.pipelines import archive
from leveret.pipelines.lakes import FORMATS, LakeOptions, TableSize, open_lake
from leveret.pipelines.lakes.files import LAKE_FILES_OPEN_MAX, PartitionedFiles
from leveret.pipelines.lakes.sink import LakeWriter, WrittenFiles
from leveret.pipelines.refusals import JobError
from leveret.pipelines.source import read_archive
from support.spark.live_stream import LiveStream

DAY = date(2026, 11, 21)
PARTITION_BY = ("stream", "date")


def rows(*offsets: int, stream: str = "s", day: date | None = DAY) -> pa.RecordBatch:
    """Rows of one partition."""
    count = len(offsets)
    return pa.record_batch(
        {
            "offset": pa.array(offsets, pa.int64()),
            "body": pa.array([b"%d" % offset for offset in offsets]),
            "stream": pa.array([stream] * count),
            "date": pa.array([day] * count, pa.date32()),
        }
    )


def options(path: Path, format_: str) -> LakeOptions:
    return LakeOptions(format_, str(path), PARTITION_BY, "zstd")


def in_table(path: Path, format_: str) -> list[int]:
    """The offsets that the table lists."""
    uris = open_lake(options(path, format_)).uris()
    names = [uri.removeprefix("file://") for uri in uris]
    tables = [pa.parquet.read_table(name, partitioning=None) for name in names]
    return sorted(offset for table in tables for offset in table["offset"].to_pylist())


@pytest.mark.parametrize("format_", FORMATS)
class TestWriter:
    """The sink in Spark's order of calls, without Spark: a writer is made anew for each call."""

    def writer(self, path: Path, format_: str) -> LakeWriter:
        chosen = options(path, format_)
        open_lake(chosen).create(rows(0).schema)
        return LakeWriter(chosen, rows(0).schema)

    def test_a_batch_that_is_repeated_after_its_commit_is_there_once(
        self, tmp_path: Path, format_: str
    ) -> None:
        for batch, offsets in ((0, (0, 1)), (1, (2,)), (1, (2,)), (2, (3,)), (1, (2,))):
            written = self.writer(tmp_path, format_).write(iter([rows(*offsets)]))
            self.writer(tmp_path, format_).commit([written], batch)
        assert in_table(tmp_path, format_) == [0, 1, 2, 3]
        # The file of a repeated batch is in no table.
        lake = open_lake(options(tmp_path, format_))
        sizes = [Path(uri.removeprefix("file://")).stat().st_size for uri in lake.uris()]
        assert lake.size() == TableSize(3, sum(sizes))

    def test_a_task_that_came_to_its_end_in_a_failed_batch_is_in_no_table(
        self, tmp_path: Path, format_: str
    ) -> None:
        writer = self.writer(tmp_path, format_)
        done: list[WriterCommitMessage | None] = [writer.write(iter([rows(0)])), None]
        self.writer(tmp_path, format_).abort(done, 0)
        assert in_table(tmp_path, format_) == []
        written = self.writer(tmp_path, format_).write(iter([rows(0), rows(1)]))
        self.writer(tmp_path, format_).commit([written], 0)
        assert in_table(tmp_path, format_) == [0, 1]

    def test_another_query_has_batches_of_its_own(self, tmp_path: Path, format_: str) -> None:
        for query in ("first", "second"):
            written = self.writer(tmp_path, format_).write(iter([rows(0)]))
            self.writer(tmp_path, format_).commit([WrittenFiles(query, written.files)], 0)
        assert in_table(tmp_path, format_) == [0, 0]

    def test_a_batch_of_nothing_commits_nothing(self, tmp_path: Path, format_: str) -> None:
        written = self.writer(tmp_path, format_).write(iter([rows()]))
        self.writer(tmp_path, format_).commit([written], 0)
        assert written.files == ()
        assert in_table(tmp_path, format_) == []


def test_files_are_of_one_partition_each_in_order(tmp_path: Path) -> None:
    mixed = pa.Table.from_batches(
        [rows(0, 1), rows(2, stream="a/b=ü %"), rows(3), rows(4, day=None)]
    )
    files = PartitionedFiles(str(tmp_path), PARTITION_BY, "zstd", keep=False, folder="")
    found = files.write(mixed.combine_chunks().to_batches())
    offsets = {
        tuple(file.partition.values()): pa.parquet.read_table(
            tmp_path / file.path, partitioning=None
        )["offset"].to_pylist()
        for file in found
    }
    assert offsets == {
        ("s", "2026-11-21"): [0, 1, 3],
        ("a/b=ü %", "2026-11-21"): [2],
        ("s", None): [4],
    }
    assert (tmp_path / "stream=a%2Fb%3Dü %25" / "date=2026-11-21").is_dir()
    assert (tmp_path / "stream=s" / "date=__HIVE_DEFAULT_PARTITION__").is_dir()
    assert all(file.size == (tmp_path / file.path).stat().st_size for file in found)


def test_more_partitions_than_files_that_may_be_open(tmp_path: Path) -> None:
    streams = [f"s{number}" for number in range(LAKE_FILES_OPEN_MAX + 3)]
    batches = [rows(turn, stream=stream) for turn in range(2) for stream in streams]
    files = PartitionedFiles(str(tmp_path), PARTITION_BY, "zstd", keep=False, folder="")
    found = files.write(batches)
    assert sum(file.rows for file in found) == len(batches)
    assert {file.partition["stream"] for file in found} == set(streams)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> object:
        yield rows(0)
        yield rows(1, stream="t")
        raise OSError("the source is gone")

    files = PartitionedFiles(str(tmp_path), PARTITION_BY, "zstd", keep=False, folder="")
    with pytest.raises(OSError, match="the source is gone"):
        files.write(failing())  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.thorough
@pytest.mark.parametrize("format_", FORMATS)
def test_an_archive_that_is_cut_short_repeats_nothing(
    spark: SparkSession, stream: LiveStream, tmp_path: Path, format_: str
) -> None:
    """The commit of the last batch is lost on Spark's side, after the table has it."""
    bodies = stream.publish_numbers(0, 25)
    path = tmp_path / "lake"
    kept = tmp_path / "checkpoint"
    first = archive(
        spark, stream.uri, stream.name, path, format=format_, checkpoint=kept,
        max_offsets_per_trigger=10,
    )  # fmt: skip
    assert (first.records, first.batches, first.next_offset) == (25, 3, 25)
    lost = [*(kept / "commits").glob("*2*")]
    assert lost
    for file in lost:
        file.unlink()
    bodies += stream.publish_numbers(25, 30)
    archive(spark, stream.uri, stream.name, path, format=format_, checkpoint=kept)
    found = read_archive(spark, path).orderBy("offset").collect()
    assert [(row["offset"], row["body"]) for row in found] == list(enumerate(bodies))
    assert {row["stream"] for row in found} == {stream.name}
    with pytest.raises(JobError, match="is not its checkpoint"):
        archive(spark, stream.uri, stream.name, path, format=format_, checkpoint=tmp_path / "other")


def test_hours_are_directories(spark: SparkSession, stream: LiveStream, tmp_path: Path) -> None:
    stream.publish_numbers(0, 3)
    archive(spark, stream.uri, stream.name, tmp_path, partition_by="hour")
    assert list(tmp_path.glob("stream=*/date=*/hour=*"))
    assert read_archive(spark, tmp_path).count() == 3


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"format": "orc"}, "'orc' is none of parquet, delta, iceberg"),
        ({"partition_by": "week"}, "'week' is none of date, hour"),
        ({"format": "delta", "table": "t"}, "only for the format iceberg"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    spark: SparkSession, tmp_path: Path, more: dict[str, str], text: str
) -> None:
    with pytest.raises(JobError, match=text):
        archive(spark, "amqp://localhost", "s", tmp_path / "lake", **more)  # type: ignore[arg-type]
    assert not (tmp_path / "lake").exists()
