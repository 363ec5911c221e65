"""A wheel is used again only for what it was made of."""

from __future__ import annotations

from pathlib import Path

import pytest

import wheels


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources of a package, which no compiler is needed for."""
    (tmp_path / "src" / "leveret").mkdir(parents=True)
    (tmp_path / "src" / "leveret" / "one.py").write_text("ONE = 1\n")
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_its_name_changes_with_sources_flags_and_compiler(tree: Path) -> None:
    def key(compiler: str = "gcc 12", **environment: str) -> str:
        return wheels.key_of(tree, environment, compiler)

    keys = {key(), key(LEVERET_PURE="1"), key(CFLAGS="-O0"), key("gcc 13")}
    # What a run leaves behind is no source, and neither is a time.
    (tree / "src" / "leveret" / "one.pyc").write_bytes(b"x")
    (tree / "src" / "leveret" / "one.py").touch()
    assert key(HOME="/elsewhere") in keys
    (tree / "src" / "leveret" / "one.py").write_text("ONE = 2\n")
    keys.add(key())
    (tree / "src" / "leveret" / "one.py").rename(tree / "src" / "leveret" / "two.py")
    keys.add(key())
    (tree / "setup.py").write_text("pass\n")
    assert len(keys | {key()}) == 7


def test_what_is_there_is_used_and_only_some_stay(tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "wheels"
    for number in range(wheels.KEPT + 3):
        folder = store / f"key{number}"
        folder.mkdir(parents=True)
        (folder / "leveret-1-py3-none-any.whl").write_text(str(number))
    assert wheels.kept(tree, store, "key2").read_text() == "2"
    (tree / "setup.py").write_text("from setuptools import setup\nsetup()\n")
    (tree / "pyproject.toml").write_text('[project]\nname = "leveret"\nversion = "1"\n')
    made = wheels.kept(tree, store, "new")
    assert made.parent == store / "new"
    assert len(list(store.iterdir())) == wheels.KEPT
    assert (store / "key2").is_dir()
