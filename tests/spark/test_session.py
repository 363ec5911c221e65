"""The session: what a fresh machine needs is set, and nothing of the user's is overruled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import leveret.spark
from leveret.spark.installation import cache_dir, class_data_options, class_data_path


def test_workers_run_this_python_and_times_are_utc(spark: SparkSession) -> None:
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


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


@pytest.mark.parametrize("module", ["leveret.spark", "leveret.pipelines"])
def test_importing_it_loads_neither_pyspark_nor_pyarrow(module: str) -> None:
    """A command that names the pipelines starts as fast as any other."""
    code = f"import sys, {module}; sys.exit(bool({{'pyspark', 'pyarrow'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
