"""Which tests run again is told by what they import, and all of it where that does not tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import changed

FILES = {
    "pyproject.toml": "",
    "setup.py": "",
    "src/leveret/__init__.py": "",
    "src/leveret/one.py": "from leveret import two\n",
    "src/leveret/two.py": "",
    "src/leveret/three.py": "",
    "tests/conftest.py": "",
    "tests/support/node/core.py": "import leveret.one\n",
    "tests/own/test_own.py": "from support.node.core import Node\n",
    "tests/starts/test_starts.py": "import subprocess\n",
    "tests/reads/test_reads.py": "PAGE = Path(__file__).parents[2] / 'docs/page.md'\n",
    "tests/house/test_house.py": "SOURCES = Path(__file__).parents[2] / 'src'\n",
    "docs/page.md": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    return tmp_path


def test_a_folder_depends_on_what_it_imports_starts_or_reads(root: Path) -> None:
    def names(folder: str) -> set[str]:
        found = changed.dependencies(root, root / "tests" / folder)
        return {str(path.relative_to(root)) for path in found}

    common = {"pyproject.toml", "setup.py", "tests/conftest.py"}
    assert names("own") == common | {
        "tests/own/test_own.py", "tests/support/node/core.py",
        "src/leveret/__init__.py", "src/leveret/one.py", "src/leveret/two.py",
    }  # fmt: skip
    sources = {name for name in FILES if name.startswith("src/")}
    assert names("starts") == common | sources | {"tests/starts/test_starts.py"}
    assert names("reads") == common | {"tests/reads/test_reads.py", "docs/page.md"}
    assert names("house") == set(FILES)


def test_what_is_in_a_file_tells_and_not_its_time(root: Path) -> None:
    paths = changed.dependencies(root, root / "tests" / "own")
    before = changed.digest(root, paths)
    (root / "src/leveret/two.py").touch()
    assert changed.digest(root, paths) == before
    (root / "src/leveret/two.py").write_text("TWO = 2\n")
    assert changed.digest(root, paths) != before
