"""The session: what a fresh machine needs is set, and nothing of the user's is overruled."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import leveret.spark
from leveret.spark.installation import cache_dir, class_data_options, class_data_path
from leveret.spark.python import PythonError, must_register, use_this_python
from leveret.spark.redaction import PATTERNS, hide_uris
from leveret.spark.registration import register
from support.spark.live_stream import LiveStream


def test_workers_run_this_python_and_times_are_utc(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.python.daemon.module") == "leveret.spark.worker_daemon"


def test_a_session_that_runs_is_returned(spark: SparkSession) -> None:
    again = leveret.spark.session(master="local[2]", config={"spark.leveret.test": "1"})
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.leveret.test") == "1"


def test_spark_home_has_no_zipped_python(spark: SparkSession) -> None:
    """From the zip, which holds no compiled modules, a worker starts four times as slowly."""
    home = Path(os.environ["SPARK_HOME"])
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()


def test_a_jvm_takes_its_classes_from_the_disk_if_they_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = class_data_path(Path(os.environ["SPARK_HOME"]), Path(os.environ["JAVA_HOME"]))
    jvm: Any = spark._jvm  # noqa: SLF001  no other way to ask
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert (f"-XX:SharedArchiveFile={place}" in arguments) == place.is_file()
    assert class_data_options(tmp_path / "none.jsa") == ""
    (tmp_path / "two words.jsa").touch()
    assert class_data_options(tmp_path / "two words.jsa") == ""


def test_another_java_has_classes_of_its_own(tmp_path: Path) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        home.mkdir()
        (home / "release").write_text("JAVA_VERSION=17")
    first, second = (class_data_path(tmp_path, home) for home in homes)
    (homes[0] / "release").write_text("JAVA_VERSION=17.0.1")
    assert len({first, second, class_data_path(tmp_path, homes[0])}) == 3


def test_the_cache_is_the_users_or_else_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "leveret"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    fallback = cache_dir()
    assert fallback.is_dir()
    fallback.rmdir()


def test_a_cluster_runs_the_python_that_the_user_names(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of the driver's Python may be that of no executor's."""
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    leveret.spark.session(master="spark://127.0.0.1:1")
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_a_notebooks_variable_does_not_name_the_workers_of_one_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    use_this_python()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert not must_register(os.environ.get, "none", [])


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (None, "it cannot be started"),
        ("echo Jupyter; exit 1", "it is not a Python"),
        (f'exec {sys.executable} -S -E "$@"', "it lacks pyarrow, leveret"),
    ],
)
def test_a_python_that_could_be_no_worker_is_an_error_with_the_remedy(
    script: str | None, fault: str, tmp_path: Path
) -> None:
    command = tmp_path / "jupyter"
    if script is not None:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    environment = {"PYSPARK_DRIVER_PYTHON": str(command)}.get
    with pytest.raises(PythonError, match=fault) as caught:
        must_register(environment, str(command), [])
    assert f"PYSPARK_DRIVER_PYTHON is '{command}'" in str(caught.value)
    assert "unset PYSPARK_DRIVER_PYTHON and set PYSPARK_PYTHON" in str(caught.value)
    assert must_register(environment, sys.executable, [])


def test_a_source_that_came_by_py_files_is_registered(tmp_path: Path) -> None:
    """The files are in the driver's path, and not in that of the Python that looks for sources."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    environment = {"PYSPARK_PYTHON": str(bare)}.get
    files = [entry for entry in sys.path if entry]
    assert must_register(environment, str(bare), files)
    # Streaming reads need them in the JVM's path too; executors have them only once registered.
    both = {"PYSPARK_PYTHON": str(bare), "PYTHONPATH": os.pathsep.join(files)}.get
    assert must_register(both, str(bare), files)
    assert not must_register(both, str(bare), [])
    with pytest.raises(PythonError, match="it lacks pyarrow, leveret"):
        must_register(environment, str(bare), [])


def test_another_thread_writes(spark: SparkSession, stream: LiveStream, tmp_path: Path) -> None:
    """A table and a query: Spark finds no source that it writes to in a thread without session."""
    numbers = spark.range(3).selectExpr("CAST(id AS STRING) AS body")
    to = {"uri": stream.uri, "stream": stream.name}
    lake = str(tmp_path / "lake")
    numbers.write.parquet(lake)

    def write() -> None:
        numbers.write.format("leveret").options(**to).mode("append").save()
        rows = spark.readStream.schema("body string").parquet(lake).writeStream.format("leveret")
        kept = {**to, "checkpointLocation": str(tmp_path / "checkpoint")}
        rows.options(**kept).trigger(availableNow=True).start().awaitTermination()

    with ThreadPoolExecutor(1) as thread:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            thread.submit(write).result()
        assert thread.submit(leveret.spark.in_thread, spark).result() is spark
        thread.submit(write).result()
    read = spark.read.format("leveret").options(**to).load()
    assert sorted(row["body"] for row in read.collect()) == [b"0", b"0", b"1", b"1", b"2", b"2"]


SECRET = "s3cr3t"


@pytest.mark.parametrize("name", ["uri", "url"])
def test_no_plan_shows_the_password_in_options_of_sql(spark: SparkSession, name: str) -> None:
    """Nor an event log, which has the same text."""
    for setting in PATTERNS:
        spark.conf.set(setting, "(?i)words")
    hide_uris(spark)
    options = f"{name} 'amqp://u:{SECRET}@h/%2F', stream 'words'"
    view = f"CREATE OR REPLACE TEMPORARY VIEW v USING leveret OPTIONS ({options})"
    literal = f"SELECT 'amqps://u:{SECRET}@[::1]:5671' AS x, 'some words'"
    for query in (view, literal):
        text = spark.sql(f"EXPLAIN EXTENDED {query}").collect()[0][0]
        assert "redacted" in text
        assert SECRET not in text
        assert "words" not in text


def test_a_session_in_which_the_source_is_registered_hides_uris(spark: SparkSession) -> None:
    for setting in PATTERNS:
        spark.conf.unset(setting)
    assert register(spark) is spark
    assert {setting: spark.conf.get(setting) for setting in PATTERNS} == PATTERNS


@pytest.mark.parametrize("module", ["leveret.spark", "leveret.pipelines"])
def test_importing_it_loads_neither_pyspark_nor_pyarrow(module: str) -> None:
    """A command that names the pipelines starts as fast as any other."""
    code = f"import sys, {module}; sys.exit(bool({{'pyspark', 'pyarrow'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
