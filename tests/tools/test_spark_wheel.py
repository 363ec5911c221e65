"""`leveret-spark`, the data source alone: small, whole, and no hindrance to `leveret`."""

from __future__ import annotations

import email
import importlib.util
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import xxhash

from slim.stand_ins import xxhash as stand_in

pytestmark = [pytest.mark.one_build, pytest.mark.commands]

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/spark_wheel.py"
BYTES_MAX = 2_000_000

#: What an executor has: PySpark, and what pip installs with the wheel.
ON_EXECUTORS = ("pyspark", "py4j", "pyarrow", "numpy", "numpy.libs")

#: Imports each module of the wheel that its first argument is, from there, and one of the others.
IMPORT_ALL = """
import importlib, sys, zipfile
sys.path[:0] = sys.argv[1:]
names = [name for name in zipfile.ZipFile(sys.argv[1]).namelist() if name.endswith(".py")]
for name in names:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    found = importlib.import_module(module.replace("_leveret_spark", "leveret"))
    assert found.__file__ == f"{sys.argv[1]}/{name}", found
from leveret.client import blocking
from pyspark_leveret import DefaultSource
print(DefaultSource.__mro__[1].__module__, sys.modules["xxhash"].__name__)
try:
    import leveret.pipelines
except ModuleNotFoundError as error:
    print(error)
"""

#: Prints the place of a module.
WHERE = "import leveret.spark.offsets as o, os; print(os.path.relpath(o.__file__, {folder!r}))"


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command that succeeds, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, TOOL, folder], folder)
    (found,) = folder.iterdir()
    return found


def test_it_is_small_and_needs_little(wheel: Path) -> None:
    assert wheel.stat().st_size <= BYTES_MAX
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        told = email.message_from_bytes(archive.read(name))
    needs = [need for need in told.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert [need.partition(">")[0] for need in needs] == ["numpy", "pyarrow"]


def test_its_modules_are_those_of_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("_leveret_spark/") and "stand_ins" not in name:
                source = ROOT / "src/leveret" / name.removeprefix("_leveret_spark/")
                assert archive.read(name) == source.read_bytes()


def test_its_modules_work_from_a_zip_with_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """`--py-files` puts the zip on the path, and there is neither mypy_extensions nor xxhash."""
    for name in ON_EXECUTORS:
        spec = importlib.util.find_spec(name.partition(".")[0])
        assert spec is not None
        assert spec.origin is not None
        place = Path(spec.origin).parents[1] / name
        if place.exists():
            (tmp_path / name).symlink_to(place)
    # Spark puts files on the path whose names end in .zip.
    archive = wheel.with_suffix(".zip")
    archive.write_bytes(wheel.read_bytes())
    told = run([sys.executable, "-ISc", IMPORT_ALL, archive, tmp_path], tmp_path)
    found, absent = told.splitlines()
    assert found == "leveret.spark.source leveret.stand_ins.xxhash"
    assert absent.startswith("No module named 'leveret.pipelines': this is leveret-spark ")


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_the_digests_of_the_stand_in_are_those_of_xxhash(seed: int) -> None:
    """At both sides of each size at which the algorithm differs."""
    data = os.urandom(200_000)
    near = (0, 3, 8, 16, 32, 64, 96, 128, 240, 1024, 1088, 65536, 131_073)
    for size in sorted({around + by for around in near for by in (0, 1, 2)}):
        part = memoryview(data)[:size]
        assert stand_in.xxh3_64_digest(part, seed) == xxhash.xxh3_64_digest(part, seed), size
        assert stand_in.xxh3_64_hexdigest(part, seed) == xxhash.xxh3_64_hexdigest(part, seed)
    parts = stand_in.xxh3_64(data[:1000], seed)
    parts.update(data[1000:])
    assert parts.digest() == xxhash.xxh3_64_digest(data, seed)


def test_an_import_of_something_else_ends_the_build(tmp_path: Path) -> None:
    allowed = "spark_wheel.ALLOWED - {'numpy'}"
    code = f"import sys; sys.path.insert(0, {str(TOOL.parent)!r}); import spark_wheel; "
    command = [sys.executable, "-c", code + f"spark_wheel.closure({allowed})"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("leveret-spark has no numpy, which leveret.spark.")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package `leveret` as far as it matters here: its Python files in a wheel of its name."""
    folder = tmp_path_factory.mktemp("full")
    made = folder / "leveret-9-py3-none-any.whl"
    own = sorted((ROOT / "src").glob("*/**/*.py"))
    names = [path.relative_to(ROOT / "src").as_posix() for path in own]
    with zipfile.ZipFile(made, "w") as archive:
        for name, path in zip(names, own, strict=True):
            archive.write(path, name)
        archive.writestr("leveret-9.dist-info/METADATA", "Name: leveret\nVersion: 9\n")
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("leveret-9.dist-info/WHEEL", wheel)
        record = [f"{name},," for name in archive.namelist()]
        archive.writestr("leveret-9.dist-info/RECORD", "\n".join(record))
    return made


def test_no_file_belongs_to_both_packages(wheel: Path, full: Path) -> None:
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(full) as other:
        assert not {*one.namelist()} & {*other.namelist()}
        assert {"leveret.py", "pyspark_leveret.py"} <= {*one.namelist()}
        assert {"leveret/__init__.py", "pyspark_leveret/__init__.py"} <= {*other.namelist()}


@pytest.mark.thorough
@pytest.mark.parametrize("slim_first", [True, False])
@pytest.mark.parametrize("slim_leaves", [True, False])
def test_both_can_be_installed_and_either_removed(
    slim_first: bool, slim_leaves: bool, wheel: Path, full: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "environment", symlinks=True)
    python = tmp_path / "environment/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    for package in (wheel, full) if slim_first else (full, wheel):
        run([*pip, "install", "--no-deps", package], tmp_path)
    (packages,) = (tmp_path / "environment/lib").glob("*/site-packages")
    where: list[str | Path] = [python, "-c", WHERE.format(folder=str(packages))]
    assert run(where, tmp_path) == "leveret/spark/offsets.py\n"
    run([*pip, "uninstall", "--yes", "leveret-spark" if slim_leaves else "leveret"], tmp_path)
    left = "leveret" if slim_leaves else "_leveret_spark"
    assert run(where, tmp_path) == f"{left}/spark/offsets.py\n"
    run([*pip, "uninstall", "--yes", "leveret" if slim_leaves else "leveret-spark"], tmp_path)
    assert not [path for path in packages.rglob("*") if "leveret" in path.name]
