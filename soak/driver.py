"""The Spark program that is killed: `python -m soak.driver JSON`, a process of its own.

It runs streaming queries on their checkpoints and starts one that failed again, as a supervisor
does; `run` goes on until it is killed, `finish` ends when all that was there is done, and puts
what the files of rows hold into a file of numbers.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: A task whose Python worker was killed is tried again, as on a cluster.
MASTER: Final = "local[2,8]"

#: Failures of one query in a row after which the program gives up.
FAILURES_MAX: Final = 20
LOOK_SECONDS: Final = 0.2

#: Small batches of two tasks each: many moments at which a kill hurts.
READING: Final = {
    "maxOffsetsPerTrigger": "2000",
    "minPartitions": "2",
    "numRetries": "30",
    "pollTimeoutMs": "20000",
}

Start = Callable[["SparkSession", Mapping[str, Any]], "StreamingQuery"]


def start_archive(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    """Archive the stream `in`."""
    from leveret.pipelines.archive.job import start_archive as start

    return start(
        spark,
        given["uri"],
        "in",
        f"{given['place']}/lake",
        checkpoint=f"{given['place']}/archive",
        max_offsets_per_trigger=int(READING["maxOffsetsPerTrigger"]),
        options={name: text for name, text in READING.items() if name != "maxOffsetsPerTrigger"},
        trigger=trigger(given),
    )


def start_sink(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    """Write the stream `in` through the sink to the stream `out`."""
    rows = (
        spark.readStream.format("leveret")
        .options(uri=given["uri"], stream="in", startingOffsets="earliest", **READING)
        .load()
    )
    return (
        rows.select("body")
        .writeStream.format("leveret")
        .options(uri=given["uri"], stream="out", dedup=given["dedup"], numRetries="30")
        .option("checkpointLocation", f"{given['place']}/sink")
        .trigger(**trigger(given))
        .start()
    )


def start_both(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    """Write each batch of the stream `in` to the stream `out` and to the queue `kept`."""
    rows = (
        spark.readStream.format("leveret")
        .options(uri=given["uri"], stream="in", startingOffsets="earliest", **READING)
        .load()
    )

    def save(batch: DataFrame, number: int) -> None:
        for where in ({"stream": "out"}, {"queue": "kept"}):
            options = {"uri": given["uri"], "writeId": "both", "writeBatch": str(number), **where}
            batch.write.format("leveret").mode("append").options(**options).save()

    return (
        rows.select("body")
        .writeStream.foreachBatch(save)
        .option("checkpointLocation", f"{given['place']}/both")
        .trigger(**trigger(given))
        .start()
    )


def start_queue(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    """Take the queue `waiting` to files."""
    rows = (
        spark.readStream.format("leveret")
        .options(uri=given["uri"], queue="waiting", ackMode=given["ack_mode"], **READING)
        .option("spoolDir", f"{given['place']}/spool")
        .load()
    )
    return (
        rows.select("offset", "body", "redelivered")
        .writeStream.format("parquet")
        .option("path", f"{given['place']}/taken")
        .option("checkpointLocation", f"{given['place']}/queue")
        .trigger(**trigger(given))
        .start()
    )


STARTS: Final[dict[str, Start]] = {
    "archive": start_archive,
    "sink": start_sink,
    "both": start_both,
    "queue": start_queue,
}


def trigger(given: Mapping[str, Any]) -> Any:
    """Return how batches follow each other."""
    return {"availableNow": True} if given["mode"] == "finish" else {"processingTime": "0 seconds"}


def wait_begun(query: StreamingQuery) -> None:
    """Wait until a query has told of a batch or ended.

    Spark 4.3 puts the same settings into one map when queries of a Python source start, without a
    lock: two at once can break the map, and then no task of the session can be sent any more.
    """
    while query.isActive and query.lastProgress is None:
        time.sleep(LOOK_SECONDS)


def supervise(spark: SparkSession, given: Mapping[str, Any]) -> None:
    """Run the queries; one that failed is started again.  Raises: RuntimeError after too often."""
    queries: dict[str, StreamingQuery] = {}
    for name in given["jobs"]:
        queries[name] = STARTS[name](spark, given)
        wait_begun(queries[name])
    failures = dict.fromkeys(queries, 0)
    while queries:
        for name, query in [*queries.items()]:
            if query.isActive:
                continue
            failure = query.exception()
            if failure is None:
                del queries[name]
                continue
            failures[name] += 1
            print(f"RESTART {name}: {failure}", flush=True)
            if failures[name] > FAILURES_MAX:
                raise RuntimeError(f"{name} failed {failures[name]} times")
            queries[name] = STARTS[name](spark, given)
        time.sleep(LOOK_SECONDS)


def put_rows(spark: SparkSession, path: Path) -> None:
    """Put the rows of a directory of Parquet into a file, in order of their offsets."""
    import numpy as np
    from pyspark.sql import functions as f

    rows = (
        spark.read.parquet(str(path))
        .select(
            "offset",
            f.trim(f.col("body").cast("string")).cast("long").alias("number"),
            f.col("redelivered").cast("int").alias("redelivered"),
        )
        .orderBy("offset", "redelivered", "number")
        .toArrow()
    )
    columns = [rows[name].to_numpy() for name in ("offset", "number", "redelivered")]
    np.save(path.with_suffix(".npy"), np.stack(columns))


def main() -> int:
    """Do what the JSON says."""
    import leveret.spark

    given = json.loads(sys.argv[1])
    config = {"spark.log.level": "ERROR", "spark.sql.session.timeZone": "UTC"}
    spark = leveret.spark.session("soak", master=MASTER, fast=True, config=config)
    supervise(spark, given)
    for name in given["lakes"]:
        put_rows(spark, Path(given["place"]) / name)
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
