"""A declarative pipeline over a stream: a table that follows it, a view, and a stream of its own.

The URI comes from the environment, so that no password is in the pipeline: LEVERET_URI.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/%2F")


@dp.table(comment="Every message of the stream orders, once.")
def orders() -> DataFrame:
    """Follow the stream."""
    return (
        SparkSession.active()
        .readStream.format("leveret")
        .option("uri", URI)
        .option("stream", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select("offset", "timestamp", "routing_key", f.col("body").cast("string").alias("body"))
    )


@dp.materialized_view(comment="Messages by routing key.")
def orders_by_key() -> DataFrame:
    """Count what the table holds."""
    return SparkSession.active().read.table("orders").groupBy("routing_key").count()


dp.create_sink("large_orders", "leveret", {"uri": URI, "stream": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Publish the orders with long bodies to a stream of their own."""
    return (
        SparkSession.active()
        .readStream.table("orders")
        .where(f.length("body") > 100)
        .select("body", "routing_key")
    )
