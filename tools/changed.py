"""Run the folders of tests that what changed since they passed may have an effect on.

    .venv/bin/python tools/changed.py [FOLDER…]

A folder depends on its own files, on the modules that they import, and on what those import.  Tests
that start processes depend on all of `src`, and those that read files of the project on all of
these.  What a folder depended on when it passed is kept in the environment; so a folder is left out
if nothing of that is different.  For who works on a part: `make check` leaves nothing out.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Where imports are looked for.
PLACES = ("src", "tests", "bench", "tools", ".")

#: Each folder depends on these.
COMMON = ("pyproject.toml", "setup.py", "tests/conftest.py")

#: What is imported to start a process.
STARTING = ("subprocess", "support.brokers", "support.commands", "leveret.testing")

#: What a file says that reads documents, and what one says that reads sources or other tests.
READING = "Path(__file__)"
READING_SOURCES = re.compile(r"[\"'/](src|tests)[\"'/]|leveret\.__file__|rglob")

MARKS = "not (differential or pages_more or thorough or toolchains)"


@cache
def tracked(root: Path) -> tuple[Path, ...]:
    """Return the files of the project, also those that are not in a commit yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True)
    found = {root / name for name in listed.stdout.split("\0") if name}
    return tuple(sorted(path for path in found if path.is_file()))


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a file imports, and what may be modules in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports."""
    return tuple(names_in(ast.parse(path.read_text())))


def files_of(root: Path, name: str) -> Iterator[Path]:
    """Yield the files of a module: its own, and those of the packages that it is in."""
    parts = name.split(".")
    for place in PLACES:
        folder = root / place
        for part in parts:
            if (init := folder / part / "__init__.py").is_file():
                yield init
            if (module := folder / f"{part}.py").is_file():
                yield module
            folder /= part


def dependencies(root: Path, folder: Path) -> set[Path]:
    """Return the files that the tests of a folder depend on."""
    known = tracked(root)
    own = {path for path in known if path.is_relative_to(folder)}
    found = own | {root / name for name in COMMON}
    for text in (path.read_text() for path in own if path.suffix == ".py"):
        if READING_SOURCES.search(text):
            return set(known)
        if READING in text:
            code = (root / "src", root / "tests")
            found |= {path for path in known if not any(map(path.is_relative_to, code))}
    left = [path for path in found if path.suffix == ".py"]
    while left:
        for name in imported(left.pop()):
            fresh = set(files_of(root, name))
            if name.startswith(STARTING):
                fresh |= {path for path in known if path.is_relative_to(root / "src")}
            left += [path for path in fresh - found if path.suffix == ".py"]
            found |= fresh
    return found


def digest(root: Path, paths: Iterable[Path]) -> str:
    """Return a name for files and what is in them."""
    made = hashlib.sha256()
    for path in sorted(paths):
        data = path.read_bytes() if path.is_file() else b""
        made.update(f"\n{path.relative_to(root)} {len(data)}\n".encode() + data)
    return made.hexdigest()


def main(chosen: list[str]) -> int:
    """Run them, each folder by itself; return 1 if one fails."""
    kept = Path(sys.prefix) / "changed.json"
    passed: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    folders = [ROOT / name for name in chosen] or sorted(
        {path.parent for path in (ROOT / "tests").glob("*/test_*.py")}
    )
    code = 0
    for folder in folders:
        name = str(folder.relative_to(ROOT))
        now = digest(ROOT, dependencies(ROOT, folder))
        if passed.get(name) == now:
            print(f"{name}: as when it passed")
            continue
        command = [sys.executable, "-m", "pytest", "-q", "--hypothesis-profile=ci", "-m", MARKS]
        ended = subprocess.run([*command, "-n", "2", name], cwd=ROOT, check=False).returncode
        # 5 says that there was nothing to run.
        if ended in (0, 5):
            passed[name] = now
            kept.write_text(json.dumps(passed, indent=1, sort_keys=True))
        else:
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
