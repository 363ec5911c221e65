"""No text names a file or a folder of the project that does not exist.

Texts are pages, docstrings and comments, and whole files of other kinds: settings, scripts, styles.
Links of pages are in `test_docs.py`.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Suffixes of files that are checked as a whole, like files without a suffix.
WHOLE = {
    "",
    ".c",
    ".cfg",
    ".conf",
    ".css",
    ".go",
    ".html",
    ".java",
    ".js",
    ".md",
    ".php",
    ".rb",
    ".service",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
}

#: Named paths that are not ours: of other projects, or written by the reader.
OTHERS = {"manage.py", "pyspark/daemon.py", "waiting.py"}

#: Files that name missing paths on purpose.
EXAMPLES = {"tests/house/test_named_paths.py"}

#: The target of a link, which has a test of its own.
LINK_TARGET = re.compile(r"(?<=\])\([^)\s]+\)|^\[[^\]]+\]:\s+\S+", re.MULTILINE)

#: The first line of a block that names the reader's own file.
READERS_FILE = re.compile(r"(?<=^```python\n)# [\w/]+\.py$", re.MULTILINE)


@functools.cache
def tracked() -> tuple[str, ...]:
    """Return the project's files, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(line for line in listed.stdout.splitlines() if (ROOT / line).exists())


@functools.cache
def ends_of_paths() -> frozenset[str]:
    """Return every way to name a file or folder by the end of its path; modules also bare."""
    files = [Path(line) for line in tracked()]
    modules = [file.with_suffix("") for file in files if file.suffix == ".py"]
    paths = {path for file in (*files, *modules) for path in (file, *file.parents)}
    return frozenset(
        "/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))
    )


@functools.cache
def named() -> re.Pattern[str]:
    """Return the pattern of a path in the project.

    It begins with a folder of the project, or with a room in backquotes, or ends like a module or
    a page.  A name with a placeholder (`<word>`, `*`) does not count.
    """
    folders = {line.split("/")[0] for line in tracked() if "/" in line}
    above = "|".join(sorted(re.escape(name) for name in folders if not name.startswith(".")))
    inside = {line.split("/")[2] for line in tracked() if line.startswith("src/leveret/")}
    rooms = "|".join(sorted(name for name in inside if "." not in name))
    return re.compile(
        rf"(?<![\w./<>*(-])((?:{above})/[\w./-]*\w|[\w/-]+\.(?:py|md)|(?<=`)(?:{rooms})/[\w./-]*\w)"
        r"(?![\w/<>*-])"
    )


def unknown_paths(text: str) -> list[str]:
    """Return the paths in a text that the project does not have."""
    known = ends_of_paths() | OTHERS
    return [name for name in named().findall(text) if name not in known]


def prose_of(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def unknown_in(path: str) -> list[str]:
    """Return the paths in the texts of a file that the project does not have."""
    suffix = Path(path).suffix
    if suffix not in {".py", *WHOLE}:
        return []
    text = (ROOT / path).read_text()
    if suffix != ".py":
        return unknown_paths(READERS_FILE.sub("", LINK_TARGET.sub("", text)))
    # Most files name none, not even in code, and need not be parsed.
    if not unknown_paths(text):
        return []
    return [name for prose in prose_of(text) for name in unknown_paths(prose)]


def test_every_path_that_a_text_names_exists() -> None:
    files = [path for path in tracked() if path not in EXAMPLES and "/vendor/" not in path]
    assert [f"{path}: {name}" for path in files for name in unknown_in(path)] == []


def test_a_path_that_is_not_there_is_found() -> None:
    text = "`broker/gone.py` and src/leveret/gone run `gone.py`, `session/gone`, GONE.md"
    gone = ["broker/gone.py", "src/leveret/gone", "gone.py", "session/gone", "GONE.md"]
    assert unknown_paths(text) == gone
    known = "`tests/house/test_docs.py`, `house/test_docs`, src/leveret/limits.py, tests/house."
    assert unknown_paths(f"{known} `tests/<room>/test_<word>.py` `tests/x-*.py`") == []
    assert unknown_paths(LINK_TARGET.sub("", "[x](tests/gone.py) [`gone.py`](a.md)")) == ["gone.py"]
    page = "```python\n# mine/gone.py\nx = 1  # gone.py\n```\n"
    assert unknown_paths(READERS_FILE.sub("", page)) == ["gone.py"]


def test_code_is_no_text() -> None:
    code = '"""A."""\nx = "gone.py"  # see b.py\ndef f():\n    """C."""\n'
    assert [text for text in prose_of(code) if text] == ["A.", "C.", "# see b.py"]
