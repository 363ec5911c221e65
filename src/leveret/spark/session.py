"""A Spark session that works on a fresh machine: Java, Python, addresses and time zone are set.

It is for one machine (`local[…]`) and for a driver on a cluster alike; on a cluster only what the
driver decides is set.  A session that runs already is returned, with the settings that can still be
changed in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.spark.class_data import class_data_options, class_data_path
from leveret.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows are in UTC whatever the machine's zone; bodies may be large, so Arrow everywhere; filters
#: reach sources in Python, which spares reading what they leave out.
COMMON: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

#: One machine: nothing listens beyond loopback, few partitions do for a shuffle, and a heap of a
#: few GB is collected by what leaves the most time to the work.  Python and the JVM talk over Unix
#: sockets: over TCP each task waits 40 ms for an acknowledgement that is delayed.
LOCAL: Final = {
    JAVA_OPTIONS: "-XX:+UseParallelGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}

#: Short runs on a local disk, such as tests: a JVM that starts soon instead of one that runs fast
#: for long, and checkpoints by plain renames (a streaming batch 151 -> 94 ms).
FAST: Final = {
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


def session(
    app_name: str = "leveret",
    *,
    master: str | None = "local[*]",
    memory: str = "1g",
    fast: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session; `memory` is the driver's, `fast` is for short runs and tests.

    Without a `master` it is what spark-submit was told, whose other settings stay too.

    `config` are Spark settings that win over those of this function.

    Raises: JavaError when there is no Java; ImportError without PySpark.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error}: PySpark is missing (in a checkout of Leveret: pip install '.[spark]')"
        ) from error

    local = master is not None and master.startswith("local")
    class_data = _prepare_environment(local)
    settings = dict(COMMON)
    if local:
        settings |= LOCAL | {"spark.driver.memory": memory}
    if fast:
        settings |= FAST
    if class_data is not None:
        settings[JAVA_OPTIONS] = settings.get(JAVA_OPTIONS, "") + class_data_options(class_data)
    settings |= config or {}
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _prepare_environment(local: bool) -> Path | None:
    """Set what Spark reads from the environment, unless the user has.

    Return where the JVM that is to be started may find its classes, for one that we know well.
    """
    # Otherwise a worker runs the system's python3, which may have neither pyarrow nor us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return None  # spark-submit has started the JVM
    cache = cache_dir()
    java_home = find_java_home(cache)
    os.environ["JAVA_HOME"] = str(java_home)
    if not local:
        return None
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = overlay(cache)
    if os.environ.setdefault("SPARK_HOME", str(ours)) != str(ours):
        return None
    return class_data_path(ours, java_home)


def cache_dir() -> Path:
    """Return a directory of the user's own for what is made once."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "leveret"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="leveret-"))
    return path


def overlay(cache: Path) -> Path:
    """Return a SPARK_HOME without Spark's zipped Python, so that workers import the installed one.

    The zip holds no compiled modules: a worker starts in 1.5 s from it and in 0.4 s without.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    # Each installation has its own, so that no link is ever changed under a JVM that runs by it.
    tag = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    path = cache / f"spark-{pyspark.__version__}-{tag}"
    path.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):
            (path / name).symlink_to(home / name)
    return path
