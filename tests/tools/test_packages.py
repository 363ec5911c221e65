"""What is handed out, a wheel and an sdist, works for somebody who has nothing but it.

Compiled wheels are tried by `make wheel`, by the same tool: building one takes minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.one_build, pytest.mark.commands]

ROOT = Path(__file__).parents[2]

#: What a package is made of.
NEEDED = ("pyproject.toml", "setup.py", "README.md", "LICENSE")

_SDIST = "from setuptools import build_meta; build_meta.build_sdist('dist')"


def run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a command that succeeds."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as a package, made of a copy: a build writes beside what it builds."""
    copy = tmp_path_factory.mktemp("sources")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in NEEDED:
        shutil.copy(ROOT / name, copy)
    run([sys.executable, "-c", _SDIST], copy)
    (found,) = (copy / "dist").iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist becomes where there is no compiler."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", str(folder), str(sdist)], folder, LEVERET_PURE="1")
    (found,) = folder.iterdir()
    return found


def test_an_sdist_has_the_sources_and_nothing_that_was_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(NEEDED) <= names
    sources = {
        str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")
        if "egg-info" not in str(path)
    }  # fmt: skip
    assert sources <= names
    assert not [name for name in names if name.endswith((".so", ".c", ".pyc"))]


def test_a_wheel_of_plain_python_is_named_so_and_has_all_data(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for data in ("py.typed", "__init__.pyi", "cli/demo/logs/access.log"):
        assert f"leveret/{data}" in names
    assert not [name for name in names if name.endswith(".so")]
    assert "pyspark_leveret/__init__.py" in names


def test_a_wheel_works_in_a_bare_environment(wheel: Path) -> None:
    tool = str(ROOT / "tools/try_package.py")
    run([sys.executable, tool, "--expect", "pure", str(wheel)], wheel.parent)


def test_what_is_not_as_it_was_said_is_told(wheel: Path, tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools/try_package.py")]
    broken = tmp_path / wheel.name
    broken.write_bytes(b"no archive")
    done = subprocess.run([*tool, str(broken)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "it cannot be installed" in done.stderr
