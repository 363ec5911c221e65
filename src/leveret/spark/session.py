"""Creation of a Spark session that works on a fresh machine.

It sets Java, Python, addresses and the time zone, for one machine (`local[…]`) or a driver on a
cluster.  On a cluster, it changes only settings of the driver, but not Spark's Python, which the
executors use too.  If a session is running, it is returned, with all settings applied that can
still be changed.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from leveret.spark.installation import (
    cache_dir,
    class_data_options,
    class_data_path,
    no_log_options,
    overlay,
)
from leveret.spark.java import find_java_home, without_vectors
from leveret.spark.python import PythonError, use_this_python
from leveret.spark.redaction import hide_uris
from leveret.spark.registration import register_if_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Times are in UTC in any time zone of the machine.  Arrow is used everywhere, because bodies may
#: be large.  Filters are pushed to Python sources, so that they read less.
COMMON: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}

_SKETCHES: Final = "org.apache.datasketches.memory.internal.ResourceImpl"

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

#: Settings for one machine.  Spark listens only on loopback, and a shuffle needs few partitions.
#: For a heap of a few GB, the parallel collector leaves most time to the jobs.  Python and the JVM
#: use Unix sockets, because over TCP each task waits 40 ms for a delayed acknowledgement.
LOCAL: Final = {
    JAVA_OPTIONS: "-XX:+UseParallelGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # This daemon prints no traceback when Spark needs no more rows from a worker.
    "spark.python.daemon.module": "leveret.spark.worker_daemon",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}

#: Settings for short runs on a local disk, such as tests: a JVM that starts fast rather than runs
#: fast, and checkpoints without checksums.
FAST: Final = {
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}

#: The setting for checkpoints by plain renames with `fast` (a streaming batch 151 -> 94 ms).
#: Versions of Spark have different names for the class.
CHECKPOINTS: Final = "spark.sql.streaming.checkpointFileManagerClass"


def session(
    app_name: str = "leveret",
    *,
    master: str | None = "local[*]",
    memory: str = "1g",
    fast: bool = False,
    quiet: bool = False,
    lag_port: int | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session that finds the data source, on one machine or a driver on a cluster.

    It chooses Java and Python, and sets the time zone UTC, Arrow, and the pushing of filters to
    sources.  For a local master, it also sets addresses and a small shuffle.  If a session is
    running, it is returned, with all settings that can still be changed.

    - `master`: as for Spark; with None, the master and the other settings of spark-submit apply.
    - `memory`: the heap of the driver, for a local master.
    - `fast`: settings for short runs and tests.
    - `quiet`: a JVM that this call starts on this machine logs nothing.  Errors are raised.
    - `lag_port`: the port at which the lag of streaming queries is served to Prometheus, as
      `watch_lag` does.
    - `config`: Spark settings, which override those of this function.

    Raises: `leveret.spark.java.JavaError` if no suitable Java is found;
    `leveret.spark.python.PythonError` if the Python that Spark would start cannot run the source;
    ImportError without PySpark.
    """
    try:
        from pyspark.sql import SparkSession

        from leveret.spark.versions import CHECKPOINTS_BY_RENAMES
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error}: PySpark is missing (in a checkout of Leveret: pip install '.[spark]')"
        ) from error

    local = master is not None and master.startswith("local")
    java_options = _prepare_environment(local, quiet)
    settings = dict(COMMON)
    if local:
        settings |= LOCAL | {"spark.driver.memory": memory}
    if fast:
        settings |= FAST | {CHECKPOINTS: CHECKPOINTS_BY_RENAMES}
    if java_options:
        settings[JAVA_OPTIONS] = settings.get(JAVA_OPTIONS, "") + java_options
    settings |= config or {}
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = _made(builder)
    hide_uris(spark)
    if quiet and java_options:
        _load_silently(spark)
    if lag_port is not None:
        _serve_lag(spark, lag_port)
    return in_thread(spark)


def _made(builder: SparkSession.Builder) -> SparkSession:
    """Create a session in which Spark finds the data source.  Raises: PythonError."""
    from pyspark import SparkContext

    runs = SparkContext._active_spark_context is not None  # noqa: SLF001  PySpark has no public attribute for it
    spark = builder.getOrCreate()
    try:
        register_if_needed(spark)
    except PythonError:
        if not runs:
            spark.stop()
        raise
    return spark


def in_thread(spark: SparkSession) -> SparkSession:
    """Make a session the calling thread's active session, and return it.

    Spark 4.3 looks up the source of a *write* in the thread's active session, which only the thread
    that created the session has.  In other threads, `save()` and `start()` fail with
    `DATA_SOURCE_NOT_FOUND`.  Spark Connect does not need this.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:
        # PySpark has no public function for it.
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(session)  # noqa: SLF001
    return spark


#: The application id and port of each session whose lag is served.
_served: Final[set[tuple[str, int]]] = set()


def _serve_lag(spark: SparkSession, port: int) -> None:
    """Serve the lag of a session's queries, unless it is already served.

    Raises: as `watch_lag`.
    """
    from leveret.spark.listener import watch_lag

    served = spark.sparkContext.applicationId, port
    if served not in _served:
        watch_lag(spark, port=port)
        _served.add(served)


def _load_silently(spark: SparkSession) -> None:
    """Load a class of Spark's sketches, and suppress its warning about Java newer than 11."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm  # noqa: SLF001  PySpark has no public attribute for it
    lang = jvm.java.lang
    errors = lang.System.err
    lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
    with contextlib.suppress(Py4JError):  # another version of Spark may not have it
        lang.Class.forName(_SKETCHES, True, lang.Thread.currentThread().getContextClassLoader())
    lang.System.setErr(errors)


def _prepare_environment(local: bool, quiet: bool) -> str:
    """Set the environment variables that Spark reads, unless the user has set them.

    Return options for the JVM that is going to start on this machine, each after a space.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM
    if local and not submitted:
        use_this_python()
    if submitted:
        return ""
    from leveret.spark.versions import JAVA_MAX

    cache = cache_dir()
    java_home = find_java_home(cache, JAVA_MAX)
    os.environ["JAVA_HOME"] = str(java_home)
    if not local:
        return ""
    options = ""
    if quiet:
        os.environ["JAVA_HOME"] = str(without_vectors(java_home, cache))
        options = no_log_options(cache)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = overlay(cache)
    if os.environ.setdefault("SPARK_HOME", str(ours)) != str(ours):
        return options
    return options + class_data_options(class_data_path(ours, java_home))
