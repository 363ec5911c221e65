"""Install Leveret into the environment that runs this: the wheel of the same sources, or a new one.

    LEVERET_PURE=0 .venv/bin/python tools/wheels.py

A wheel is kept under what it was made of: the sources, this Python, the compiler and its flags, and
the packages that build.  So going back to an earlier commit, or making a second clone, compiles
nothing.  The last `KEPT` of them stay in `~/.cache/leveret/wheels`; `WHEELS=new` looks for
none and keeps none, as in `.ci/run`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

#: How many wheels are kept: of two builds, for some commits.
KEPT = 8

#: What else a wheel is made of.
BUILDING = ("librt", "mypy", "mypy-extensions", "setuptools")
VARIABLES = ("CC", "CFLAGS", "LDFLAGS", "LEVERET_PURE", "LEVERET_REQUIRE_COMPILED")


def files(root: Path) -> Iterator[Path]:
    """Yield what a wheel is made of, in an order."""
    yield from (root / name for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"))
    for path in sorted((root / "src").rglob("*")):
        made = path.suffix == ".pyc" or any(part.endswith(".egg-info") for part in path.parts)
        if path.is_file() and not made:
            yield path


def key_of(root: Path, environment: Mapping[str, str], compiler: str) -> str:
    """Return a name for what a wheel is made of."""
    digest = hashlib.sha256()
    told = [sys.version, sysconfig.get_config_var("EXT_SUFFIX"), compiler]
    told += [environment.get(name, "") for name in VARIABLES]
    told += [importlib.metadata.version(name) for name in BUILDING]
    digest.update(repr(told).encode())
    for path in files(root):
        data = path.read_bytes()
        digest.update(f"\n{path.relative_to(root)} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:32]


def compiler_of(environment: Mapping[str, str]) -> str:
    """Return what the C compiler says of itself."""
    command = [environment.get("CC", "cc").split()[0], "--version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def pip(*arguments: str | Path) -> None:
    """Run this environment's pip."""
    quiet = ["--disable-pip-version-check", "--quiet", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", *quiet, *map(str, arguments)], check=True)


def make(root: Path, folder: Path) -> Path:
    """Make the wheel."""
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, root)
    (wheel,) = folder.glob("*.whl")
    return wheel


def kept(root: Path, store: Path, key: str) -> Path:
    """Return the wheel of a key, made first where none is there."""
    folder = store / key
    for wheel in folder.glob("*.whl"):
        print(f"a wheel of these sources is there: {folder}")
        folder.touch()
        return wheel
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store) as scratch:
        wheel = make(root, Path(scratch))
        folder.mkdir(exist_ok=True)
        # At once, so that whoever sees it sees it whole.
        wheel.replace(folder / wheel.name)
    for old in sorted(store.iterdir(), key=lambda one: one.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder / wheel.name


def main() -> None:
    """Install it."""
    root = Path(__file__).parents[1]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with tempfile.TemporaryDirectory() as scratch:
        if os.environ.get("WHEELS") == "new":
            wheel = make(root, Path(scratch))
        else:
            key = key_of(root, os.environ, compiler_of(os.environ))
            wheel = kept(root, cache / "leveret" / "wheels", key)
        pip("install", "--no-compile", "--no-deps", "--force-reinstall", wheel)


if __name__ == "__main__":
    main()
