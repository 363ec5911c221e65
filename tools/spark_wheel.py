"""Make `leveret-spark`: a wheel of plain Python with the data source and the sink alone.

    .venv/bin/python tools/spark_wheel.py [FOLDER]

It takes the modules of `src/leveret/spark`, all that they import, and the packages above those,
each byte for byte as in `src`, and puts them into the directory `_leveret_spark`.  Beside it are
two modules: `leveret.py` (`tools/slim`), which finds that directory, and `pyspark_leveret`.  So the
wheel has no file in common with the package `leveret`, whose directories of the same names Python
finds first.  A module that imports what is neither in `ALLOWED` nor in Python's library ends the
build.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import tomllib
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
SLIM: Final = ROOT / "tools" / "slim"
FOLDER: Final = "_leveret_spark"

#: What pip installs with it; the platform brings PySpark.
NEEDS: Final = ("numpy>=1.26", "pyarrow>=17")

#: What the modules may import.  `leveret.py` has stand-ins for mypy_extensions and xxhash; compiled
#: modules alone import librt, functions of jobs on Spark 4.0 pandas, and those who ask for a port
#: for Prometheus its client.
ALLOWED: Final = {"numpy", "pyarrow", "pyspark", "py4j"} | {
    "librt",
    "mypy_extensions",
    "pandas",
    "prometheus_client",
    "xxhash",
}

#: Zip files begin in this year: the same sources make the same bytes.
_DATE: Final = (1980, 1, 1, 0, 0, 0)


def main(folder: Path) -> None:
    """Make the wheel in a folder, and print its path and size."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = make(folder)
    print(f"{wheel}: {wheel.stat().st_size:,} bytes")


def make(folder: Path) -> Path:
    """Make the wheel and return its path."""
    version = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "src/leveret/__init__.py").read_text(), re.MULTILINE
    )[0]
    info = f"leveret_spark-{version}.dist-info"
    files = dict(sources())
    top = (SLIM / "leveret.py").read_text()
    files["leveret.py"] = top.replace('__version__ = "0"', f'__version__ = "{version}"').encode()
    files["pyspark_leveret.py"] = (ROOT / "src/pyspark_leveret/__init__.py").read_bytes()
    files[f"{info}/METADATA"] = metadata(version).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: leveret\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
    wheel = folder / f"leveret_spark-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


def sources() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each module in the directory."""
    for module in sorted(closure()):
        path = ROOT / "src" / module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if module != "leveret":
            inside = path.relative_to(ROOT / "src/leveret").as_posix()
            yield f"{FOLDER}/{inside}", path.read_bytes()
    for path in sorted(SLIM.glob("stand_ins/*.py")):
        yield f"{FOLDER}/{path.relative_to(SLIM).as_posix()}", path.read_bytes()


def closure(allowed: Collection[str] = ALLOWED) -> set[str]:
    """Return the modules of the source and the sink, and those that they import.

    It exits if one of them imports what is neither allowed nor in Python's library.
    """
    sys.path.insert(0, str(ROOT / "src"))
    graph = grimp.build_graph(
        "leveret", include_external_packages=True, exclude_type_checking_imports=True,
        cache_dir=None,
    )  # fmt: skip
    wanted = ["leveret.spark", *graph.find_descendants("leveret.spark")]
    found: set[str] = set()
    while wanted:
        module = wanted.pop()
        if module in found:
            continue
        if not module.startswith("leveret"):
            if module not in allowed and module not in sys.stdlib_module_names:
                importers = sorted(found & graph.find_modules_that_directly_import(module))
                sys.exit(f"leveret-spark has no {module}, which {', '.join(importers)} would need")
            continue
        found.add(module)
        # The package above has its own `leveret.py` instead of `leveret/__init__.py`.
        package = module.rpartition(".")[0]
        wanted += [package] if package else []
        wanted += graph.find_modules_directly_imported_by(module) if package else []
    return found


def metadata(version: str) -> str:
    """Return what the wheel says of itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = [
        need for need in project["optional-dependencies"]["spark"] if not need.startswith("pyarrow")
    ]
    (xxhash,) = (need for need in project["dependencies"] if need.startswith("xxhash"))
    lines = [
        "Metadata-Version: 2.4",
        "Name: leveret-spark",
        f"Version: {version}",
        "Summary: Streams and queues of AMQP brokers as tables in PySpark, without the broker",
        f"License-Expression: {project['license']}",
        "License-File: LICENSE",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {need}" for need in NEEDS),
        "Provides-Extra: pyspark",
        *(f'Requires-Dist: {need}; extra == "pyspark"' for need in extra),
        "Provides-Extra: xxhash",
        f'Requires-Dist: {xxhash}; extra == "xxhash"',
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (SLIM / "README.md").read_text()


def record(files: dict[str, bytes], own: str) -> str:
    """Return the list of all files with their digests."""
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{own},,"]) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
