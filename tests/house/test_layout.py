"""The layout of the sources: files that import each other in a circle, and folders that are full.

An import under `TYPE_CHECKING` counts as any other: who names a type knows it.  The circles that
there are still stand in a table, which may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

#: Modules of one folder, its `__init__` apart.
FOLDER_MODULES_MAX = 16

#: Files of a circle in the table below.
CIRCLE_FILES_MAX = 3
#: The circles that there are still.
CIRCLES_LEFT: tuple[set[str], ...] = (
    {"leveret.broker.queue.expiry", "leveret.broker.queue.host", "leveret.broker.queue.queue"},
    {"leveret.broker.stream.reader", "leveret.broker.stream.stream"},
    {"leveret.broker.topology.binding", "leveret.broker.topology.exchange"},
)


#: Lines of a class with all its bases that need no reason: who reads one reads those too.
CLASS_LINES_MAX = 500
#: Classes that are longer, and why.
LONG_CLASSES = {
    "leveret.broker.backlog.fifo_pages.FifoPages": "one chain on the delivery path",
    "leveret.broker.backlog.priority_pages.PriorityPages": "one chain on the delivery path",
    "leveret.broker.classic.classic.ClassicQueue": "how messages go out, settle and count",
    "leveret.broker.classic.consumed.ConsumedQueue": "what the classic queue's parts know of it",
    "leveret.broker.classic.waiting.WaitingQueue": "where messages lie, after a queue with chunks",
    "leveret.broker.classic.delayed.DelayedMessages": "a store of pages, after a queue with chunks",
    "leveret.broker.core.turn.Turn": "the account of work is its base; it notes all effects",
    "leveret.broker.recovery.restore.Restore": "what each kind of record means to a start",
    "leveret.broker.vhost.exchanges.Exchanges": "exchanges and bindings end with each other",
    "leveret.broker.staging.staging.StagingQueue": "400 lines are what every queue with chunks is",
    "leveret.broker.stream.stream.Stream": "blocks and what readers see, after a queue's base",
    "leveret.client.asynchronous.transport_connection.TransportConnection": "its base, too",
    "leveret.client.asynchronous.connection.Connection": "socket, recovery and calls of one state",
    "leveret.client.blocking.connection.Connection": "socket, recovery and calls of one state",
    "leveret.client.session.channel.ChannelSession": "what is asked and what comes, by one state",
    "leveret.session.connection.connection.Connection": "what channels ask of it is its base",
    "leveret.session.connection_base.ConnectionBase": "what the broker asks of any client is too",
    "leveret.session.haremq.connection.HareConnection": "what the broker asks of any client is too",
    "leveret.client.asynchronous.connection.TracedChannel": "each call of a channel, with spans",
    "leveret.client.blocking.connection.TracedChannel": "each call of a channel, with spans",
}


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


def over_folders(src: Path) -> dict[str, int]:
    """Return the folders that hold too many modules, with how many they hold."""
    counts: dict[str, int] = {}
    for path in modules_of(src).values():
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(src))
            counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > FOLDER_MODULES_MAX}


def judged(found: Sequence[set[str]], left: Sequence[set[str]]) -> list[str]:
    """Return what the circles found and those of the table do not have in common."""
    new = [circle for circle in found if not any(circle <= known for known in left)]
    gone = [known for known in left if not any(circle <= known for circle in found)]
    return [
        *(f"a new circle: {', '.join(sorted(circle))}" for circle in new),
        *(f"gone, take it out of CIRCLES_LEFT: {', '.join(sorted(known))}" for known in gone),
    ]


def test_files_import_each_other_in_no_circle() -> None:
    assert judged(circles(graph_of(SRC)), CIRCLES_LEFT) == []
    assert all(len(known) <= CIRCLE_FILES_MAX for known in CIRCLES_LEFT)


def test_no_folder_is_full() -> None:
    assert over_folders(SRC) == {}


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


def test_a_circle_is_caught_however_long(tmp_path: Path) -> None:
    for count in range(2, 6):
        ring = [f"m{number}" for number in range(count)]
        texts = {
            f"a/{name}.py": f"from a.{other} import x\n"
            for name, other in zip(ring, [*ring[1:], ring[0]], strict=True)
        }
        found = circles(graph_of(written(tmp_path, texts)))
        assert found == [{f"a.{name}" for name in ring}]
        assert len(judged(found, ())) == 1


def test_a_full_folder_is_caught(tmp_path: Path) -> None:
    written(tmp_path, {f"a/b/m{number}.py": "" for number in range(FOLDER_MODULES_MAX)})
    written(tmp_path, {"a/b/__init__.py": ""})
    assert over_folders(tmp_path) == {}
    written(tmp_path, {"a/b/one_more.py": ""})
    assert over_folders(tmp_path) == {"a/b": FOLDER_MODULES_MAX + 1}


def test_the_table_may_only_shrink() -> None:
    assert judged([{"a", "b"}], [{"a", "b", "c"}]) == []
    assert judged([{"a", "b"}], [{"a", "c"}]) == [
        "a new circle: a, b",
        "gone, take it out of CIRCLES_LEFT: a, c",
    ]
    assert judged([{"a", "b", "c"}], [{"a", "b"}]) == [
        "a new circle: a, b, c",
        "gone, take it out of CIRCLES_LEFT: a, b",
    ]


def classes_of(src: Path) -> dict[str, tuple[int, list[str]]]:
    """Return each class below a folder by its whole name: its own lines, and its bases' names."""
    found: dict[str, tuple[int, list[str]]] = {}
    for module, path in modules_of(src).items():
        tree = ast.parse(path.read_text())
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        own = {node.name for node in classes}
        for node in classes:
            assert node.end_lineno is not None
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            found[f"{module}.{node.name}"] = (
                node.end_lineno - node.lineno + 1,
                [f"{module}.{base}" if base in own else names.get(base, base) for base in bases],
            )
    return found


def lines_of(name: str, classes: Mapping[str, tuple[int, list[str]]]) -> int:
    """Return the lines of a class with its bases; those of other packages count nothing."""
    if name not in classes:
        return 0
    own, bases = classes[name]
    return own + sum(lines_of(base, classes) for base in bases)


def long_classes(src: Path) -> dict[str, int]:
    """Return the classes over the limit, with their lines."""
    classes = classes_of(src)
    lines = {name: lines_of(name, classes) for name in classes}
    return {name: count for name, count in lines.items() if count > CLASS_LINES_MAX}


def test_long_classes_have_a_reason() -> None:
    found = long_classes(SRC)
    assert {name: count for name, count in found.items() if name not in LONG_CLASSES} == {}
    assert [name for name in LONG_CLASSES if name not in found] == [], "take it out of the table"


def test_a_class_counts_with_its_bases(tmp_path: Path) -> None:
    def text(line: str, lines: int) -> str:
        return f"class {line}:\n" + "    x = 1\n" * (lines - 1)

    heir = f"from a.base import Base\n{text('Middle(Base)', 100)}{text('Heir(Middle)', 101)}"
    texts = {"a/base.py": text("Base", 300), "a/heir.py": heir}
    assert long_classes(written(tmp_path, texts)) == {"a.heir.Heir": 501}
