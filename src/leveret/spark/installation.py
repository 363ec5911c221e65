"""The files that our Spark sessions need: a cache directory, and a SPARK_HOME in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

#: Log4j's configuration without output.  Without an appender, Spark would announce and use its own,
#: and without a level of this class, it would set that of a shell.
_NO_LOG: Final = """\
status = off
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = off
"""


def cache_dir() -> Path:
    """Return the user's cache directory for files that are made once."""
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
    # Each installation has its own, so that no link changes under a running JVM.
    tag = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    path = cache / f"spark-{pyspark.__version__}-{tag}"
    path.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with contextlib.suppress(FileExistsError):
            (path / name).symlink_to(home / name)
    return path


def class_data_path(spark_home: Path, java_home: Path) -> Path:
    """Return the path of the class data of one Spark on one Java."""
    real = java_home.resolve()
    release = real / "release"
    contents = release.read_bytes() if release.is_file() else b""
    tag = hashlib.sha256(bytes(real) + b"\0" + contents).hexdigest()[:12]
    return spark_home / f"classes-{tag}.jsa"


def class_data_options(path: Path) -> str:
    """Return the JVM's options that use the class data at a path; none if there are none."""
    # Spark splits its options at blanks.
    if not path.is_file() or " " in str(path):
        return ""
    return f" -XX:SharedArchiveFile={path} -Xlog:cds=off -Xlog:cds+dynamic=off"


def no_log_options(cache: Path) -> str:
    """Return the JVM's options that keep Spark from logging; none for a cache with a blank."""
    # Spark splits its options at blanks.
    if " " in str(cache):
        return ""
    path = cache / "no-log.properties"
    if not path.exists() or path.read_text() != _NO_LOG:
        path.write_text(_NO_LOG)
    return f" -Dlog4j2.configurationFile={path}"
