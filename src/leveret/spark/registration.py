"""Registering the data source in a session, where Spark would not find it by itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from leveret.spark.python import must_register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Register the data source in a session, and return the session.

    It is needed if the source comes by `--py-files`, or if Spark runs another Python than the one
    in whose path it looks for sources; and it does no harm.
    """
    from pyspark.errors import AnalysisException

    from leveret.spark.source import LeveretDataSource

    try:
        spark.dataSource.register(LeveretDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register what it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def register_if_needed(spark: SparkSession) -> None:
    """Register the data source if Spark would not find it by itself.

    The JVM may have been started by `jupyter`, or the source may come by `--py-files`.

    Raises: PythonError if it cannot run either way.
    """
    if getattr(spark, "_jsparkSession", None) is None:
        return  # Spark Connect: its server has a Python of its own
    from pyspark import SparkFiles

    jvm: Any = spark._jvm  # noqa: SLF001  its environment counts, and not that of this process
    context = spark.sparkContext
    root = SparkFiles.getRootDirectory()
    files = [os.path.join(root, name) for name in context._python_includes or ()]  # noqa: PTH118, SLF001
    if must_register(jvm.java.lang.System.getenv, context.pythonExec, files):
        register(spark)
