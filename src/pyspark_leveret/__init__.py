"""How Spark finds the data source by the name `leveret`.

Spark looks for a class `DefaultSource` in each top-level package `pyspark_*`, so that
`spark.read.format("leveret")` needs nothing to be registered.  The code is in `leveret.spark`.
"""

from __future__ import annotations

from leveret.spark.source import LeveretDataSource

__all__ = ["DefaultSource"]


class DefaultSource(LeveretDataSource):
    """The data source by the name that Spark looks for."""
