"""Registration of the data source in sessions that would not find it by themselves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from leveret.spark.python import must_register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> SparkSession:
    """Register the data source in a session, and return the session.

    This is needed if the source is passed by `--py-files`, or if Spark runs another Python than the
    one that it searches for sources.  Otherwise it has no effect.
    """
    from pyspark.errors import AnalysisException

    from leveret.spark.source import LeveretDataSource

    try:
        spark.dataSource.register(LeveretDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses to register a source that it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    return spark


def register_if_needed(spark: SparkSession) -> None:
    """Register the data source if Spark would not find it by itself.

    The JVM may have been started by `jupyter`, or the source may be passed by `--py-files`.

    Raises: PythonError if Spark can run the source neither registered nor found by itself.
    """
    if getattr(spark, "_jsparkSession", None) is None:
        return  # Spark Connect, whose server has its own Python
    from pyspark import SparkFiles

    jvm: Any = spark._jvm  # noqa: SLF001  Spark reads the JVM's environment, not this process's
    context = spark.sparkContext
    root = SparkFiles.getRootDirectory()
    files = [os.path.join(root, name) for name in context._python_includes or ()]  # noqa: PTH118, SLF001
    if must_register(jvm.java.lang.System.getenv, context.pythonExec, files):
        register(spark)
