"""The layout of the sources: files that import each other in a circle, and folders that are full.

An import under `TYPE_CHECKING` counts as any other: who names a type knows it.  What is over a
limit today stands in a table, which may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

#: Files that may import each other in a circle.
CIRCLE_FILES_MAX = 3
#: Modules of one folder, its `__init__` apart.
FOLDER_MODULES_MAX = 18

#: Rooms that have larger circles still, and how many files lie in those together.
CIRCLES_LEFT: dict[str, int] = {}
#: Folders that have more modules still, and how many.
FOLDERS_LEFT: dict[str, int] = {}


def modules_of(src: Path) -> dict[str, Path]:
    """Return the modules below a folder by name; a package has the name of its folder."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(text: str) -> Iterator[str]:
    """Yield the names of all that a module may import, wherever in it: `a.b` and `a.b.c`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph_of(src: Path) -> dict[str, set[str]]:
    """Return which modules below a folder each of them imports."""
    modules = modules_of(src)
    return {
        name: {other for other in imported(path.read_text()) if other in modules} - {name}
        for name, path in modules.items()
    }


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that all reach each other, of two and more."""
    reached: dict[str, set[str]] = {}
    for name in graph:
        waiting, seen = [name], set[str]()
        while waiting:
            news = graph[waiting.pop()] - seen
            seen |= news
            waiting += news
        reached[name] = seen
    found: list[set[str]] = []
    for name in graph:
        circle = {other for other in reached[name] if name in reached[other]}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def over_circles(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the files of circles that are too large, by the room or rooms that they lie in."""
    found: dict[str, set[str]] = {}
    for circle in circles(graph):
        if len(circle) > CIRCLE_FILES_MAX:
            rooms = {".".join(name.split(".")[:2]) for name in circle}
            found.setdefault(" and ".join(sorted(rooms)), set()).update(circle)
    return found


def over_folders(src: Path) -> dict[str, int]:
    """Return the folders that hold too many modules, with how many they hold."""
    counts: dict[str, int] = {}
    for path in modules_of(src).values():
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(src))
            counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > FOLDER_MODULES_MAX}


def judged(found: Mapping[str, int], left: Mapping[str, int], table: str) -> list[str]:
    """Return what differs from a table of what may be over a limit still."""
    grown = [
        f"{what}: {n}, not {left.get(what, 0)}"
        for what, n in found.items()
        if n > left.get(what, 0)
    ]
    gone = [
        f"{what} is within the limit: take it out of {table}" for what in left if what not in found
    ]
    return grown + gone


def test_files_import_each_other_in_no_circle() -> None:
    found = over_circles(graph_of(SRC))
    sizes = {rooms: len(files) for rooms, files in found.items()}
    shown = {rooms: sorted(files) for rooms, files in found.items() if rooms not in CIRCLES_LEFT}
    assert judged(sizes, CIRCLES_LEFT, "CIRCLES_LEFT") == [], shown


def test_no_folder_is_full() -> None:
    assert judged(over_folders(SRC), FOLDERS_LEFT, "FOLDERS_LEFT") == []


def written(src: Path, texts: Mapping[str, str]) -> Path:
    """Write files below a folder, and return it."""
    for name, text in texts.items():
        path = src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return src


def test_the_reader_sees_every_import(tmp_path: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import Two\n"
    late = "def f():\n    import a.one\n"
    texts = {
        "a/__init__.py": "",
        "a/one.py": typed,
        "a/b.py": late,
        "a/three.py": "from a import b\n",
    }
    graph = graph_of(written(tmp_path, texts))
    assert graph == {"a": set(), "a.one": {"a.b"}, "a.b": {"a.one"}, "a.three": {"a", "a.b"}}
    assert circles(graph) == [{"a.one", "a.b"}]


def test_a_circle_of_four_and_a_full_folder_are_caught(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(FOLDER_MODULES_MAX)]
    texts = {f"a/b/{name}.py": "" for name in names}
    for count in (CIRCLE_FILES_MAX, CIRCLE_FILES_MAX + 1):
        ring = names[:count]
        for name, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            texts[f"a/b/{name}.py"] = f"from a.b.{other} import x\n"
        found = over_circles(graph_of(written(tmp_path, texts)))
        assert found == (
            {"a.b": {f"a.b.{name}" for name in ring}} if count > CIRCLE_FILES_MAX else {}
        )
    assert over_folders(tmp_path) == {}
    written(tmp_path, {"a/b/one_more.py": ""})
    assert over_folders(tmp_path) == {"a/b": FOLDER_MODULES_MAX + 1}


def test_a_table_may_only_shrink() -> None:
    assert judged({"a": 4}, {"a": 5}, "LEFT") == []
    assert judged({"a": 6}, {"a": 5}, "LEFT") == ["a: 6, not 5"]
    assert judged({"b": 4}, {}, "LEFT") == ["b: 4, not 0"]
    assert judged({}, {"a": 5}, "LEFT") == ["a is within the limit: take it out of LEFT"]
