"""Build Leveret: the modules named in `COMPILED` become C with mypyc where a compiler is there."""

from __future__ import annotations

import os
import pathlib
import sys

from setuptools import setup

SOURCE = pathlib.Path("src/leveret")
COMPILED = ["message.py", "clock.py", "limits.py", "errors.py", "chunk.py", "wire", "routing", "store", "broker", "session"]
#: Interpreted on purpose: each says why in its docstring.
INTERPRETED = {"wire/buffer.py", "store/disk.py"}


def modules() -> list[str]:
    """Return the paths of the modules to compile."""
    found: list[str] = []
    for name in COMPILED:
        path = SOURCE / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        found += [str(f) for f in files if f.exists() and f.name != "__init__.py" and f.relative_to(SOURCE).as_posix() not in INTERPRETED]
    return found


def extensions() -> list[object]:
    """Return the extension modules, or none for the pure build."""
    if os.environ.get("LEVERET_PURE") == "1":
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    return list(mypycify(modules(), opt_level="3", group_name="leveret"))


setup(ext_modules=extensions())
