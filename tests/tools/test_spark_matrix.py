"""The versions of PySpark that are tested are those that the package allows and the page names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import spark_matrix

ROOT = Path(__file__).parents[2]


def test_each_version_that_the_extra_allows_is_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (allowed,) = (
        line for line in project["optional-dependencies"]["spark"] if line.startswith("pyspark")
    )
    first, last = (
        version.split(".") for version in (spark_matrix.VERSIONS[0], spark_matrix.VERSIONS[-1])
    )
    assert allowed == f"pyspark>={'.'.join(first)},<{last[0]}.{int(last[1]) + 1}"
    minors = [int(version.split(".")[1]) for version in spark_matrix.VERSIONS]
    assert minors == [*range(minors[0], minors[-1] + 1)]


def test_an_environment_has_its_version_and_what_tests_need() -> None:
    wanted = spark_matrix.requirements("4.0")
    assert wanted[-1] == "pyspark==4.0.*"
    assert any(line.startswith("pandas") for line in wanted)
    for name in spark_matrix.TESTING:
        assert sum(line.startswith(f"{name}>") for line in wanted) == 1


def test_the_page_has_a_result_for_each_version() -> None:
    page = (ROOT / "docs/reference/spark/versions.md").read_text()
    for version in spark_matrix.VERSIONS:
        assert f"\n| {version}." in page
