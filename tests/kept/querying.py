"""The two streaming queries of a kept checkpoint: one over two streams, one over a super stream.

The checkpoint is that of queries that were killed: what the first one did last is committed at the
broker and not noted by Spark, and both have more to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kept.filling import Publisher, Sent, body, uri_of
from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.spark import start_available
from support.brokers.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How many messages each stream holds when a query has begun, has gone on, and was killed.
ONE: Final = (60, 90, 120)
TWO: Final = (40, 60, 80)
SALES: Final = (50, 90)

#: The queries: what each reads, and where it writes.
COPY: Final = "copy"
SELL: Final = "sell"
SOURCES: Final = {COPY: {"streams": "in.one,in.two"}, SELL: {"superStream": "sales"}}
TARGETS: Final = {COPY: {"stream": "copied"}, SELL: {"queue": "sold"}}


def run_query(spark: SparkSession, broker: BrokerProcess, name: str, checkpoints: Path) -> None:
    """Let a query go on from its checkpoint until it has read what is there."""
    uri = uri_of(broker, "/")
    query = start_available(
        spark.readStream.format("leveret")
        .options(uri=uri, startingOffsets="earliest", maxOffsetsPerTrigger="30", **SOURCES[name])
        .load()
        .select("body", "headers", "properties")
        .writeStream.format("leveret")
        .options(uri=uri, **TARGETS[name])
        .option("checkpointLocation", str(checkpoints / name))
        .queryName(name)
    )
    query.awaitTermination()


def query_half(spark: SparkSession, broker: BrokerProcess, checkpoints: Path, sent: Sent) -> None:
    """Run both queries over a part of the streams, and leave them as a kill does."""
    with connect(uri_of(broker, "/")) as connection:
        publisher = Publisher(connection.channel(), "/", sent)
        _publish(publisher, 0)
        run_query(spark, broker, COPY, checkpoints)
        run_query(spark, broker, SELL, checkpoints)
        _publish(publisher, 1)
        run_query(spark, broker, COPY, checkpoints)
        _forget_the_last_commit(checkpoints / COPY)
        _publish(publisher, 2)


def _publish(publisher: Publisher, step: int) -> None:
    """Publish what the streams get at a step."""
    for queue, ends in (("in.one", ONE), ("in.two", TWO)):
        first = ends[step - 1] if step else 0
        publisher.send(queue, range(first, ends[step]), app_id=queue)
    if step < len(SALES):
        for number in range(SALES[step - 1] if step else 0, SALES[step]):
            made = BasicProperties(delivery_mode=2)
            key = f"customer-{number % 12}"
            publisher.channel.publish_nowait(body("sales", number), "sales", key, made)
        publisher.channel.wait_for_confirms()


def _forget_the_last_commit(checkpoint: Path) -> None:
    """Take away Spark's note of the last batch, as if its driver was killed before it wrote one."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
