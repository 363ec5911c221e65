"""A job of `soak.slim`: a stream in batch and by a query, and a queue, each written to a stream.

    slim_job.py HOW URI CHECKPOINT [MASTER]

HOW is `session` (of Leveret), `submitted` (the same, without a master of its own), `plain` (of
Spark's own builder), `registered` (the same, and the source is registered) or `connect` (MASTER is
the server's address).  It prints the bodies' checksum and the places of `leveret` on executors, as
JSON.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def place(_: int) -> str:
    """Return where this executor's Python has `leveret`."""
    import leveret

    return str(leveret.__file__)


def session_of(how: str, master: str | None) -> SparkSession:
    """Return the session."""
    if how in {"session", "submitted"}:
        import leveret.spark

        return leveret.spark.session("slim", master=master)
    from pyspark.sql import SparkSession

    if how == "connect":
        return SparkSession.builder.remote(master or "").getOrCreate()
    spark = SparkSession.builder.getOrCreate()
    if how == "registered":
        import leveret.spark

        leveret.spark.register(spark)
    return spark


def main(how: str, uri: str, checkpoint: str, master: str | None = None) -> None:
    """Run it."""
    from pyspark.sql import functions as f

    spark = session_of(how, master)
    rows = spark.read.format("leveret").options(uri=uri, stream="in", minPartitions="4").load()
    bodies = [int(row["body"]) for row in rows.select("body").collect()]
    located = f.udf(place, "string", useArrow=False)
    places = sorted({row[0] for row in rows.select(located("offset")).distinct().collect()})
    to = {"uri": uri, "stream": "out"}
    rows.select("body").write.format("leveret").options(**to).mode("append").save()
    earliest = {"uri": uri, "stream": "in", "startingOffsets": "earliest"}
    read = spark.readStream.format("leveret").options(**earliest).load()
    query = (
        read.select("body")
        .writeStream.format("leveret")
        .options(uri=uri, stream="copied", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    queue = {"uri": uri, "queue": "waiting", "spoolDir": f"{checkpoint}-spool"}
    taken = spark.readStream.format("leveret").options(**queue).load()
    query = (
        taken.select("body")
        .writeStream.format("leveret")
        .options(uri=uri, stream="taken", checkpointLocation=f"{checkpoint}-queue")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    told = {"rows": len(bodies), "distinct": len(set(bodies)), "sum": sum(bodies), "places": places}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
