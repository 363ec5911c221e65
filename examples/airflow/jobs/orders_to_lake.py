"""Append what came to the stream `orders` since the last run to Parquet files.

    spark-submit --py-files leveret_spark.zip orders_to_lake.py LAKE

The broker's URI is in the environment, and so not in the list of processes.
"""

from __future__ import annotations

import os
import sys

import leveret.spark

lake = sys.argv[1]
spark = leveret.spark.session("orders to lake", master=None)
rows = (
    spark.readStream.format("leveret")
    .option("uri", os.environ["LEVERET_URI"])
    .option("stream", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    rows.writeStream.format("parquet")
    .option("path", lake)
    .option("checkpointLocation", f"{lake}/_checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
