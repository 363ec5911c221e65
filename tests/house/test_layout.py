"""The layout of the sources: import cycles, full folders, and classes that are too long.

There are no import cycles at run time.  Under `TYPE_CHECKING` a few files of one folder may form
one: they are read together.  Existing exceptions to a rule are in a table, which may only shrink.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import weight

SRC = Path(__file__).parents[2] / "src"

#: The maximum number of modules in one folder, without its `__init__`.
FOLDER_MODULES_MAX = 16

#: The maximum number of files in a cycle of type imports.
CIRCLE_FILES_MAX = 8

#: The maximum number of classes in a chain of bases, including the class itself.
CHAIN_CLASSES_MAX = 5

#: The maximum number of lines of a class without its bases, to be read from top to bottom.
CLASS_LINES_MAX = 700
#: The maximum number of lines of a class with all its bases without an entry in `LONG_CLASSES`:
#: reading a class means reading its bases too.
CHAIN_LINES_MAX = 700
#: Longer classes, with their reasons.
LONG_CLASSES = {
    "broker.backlog.fifo_pages.FifoPages": "one chain on the delivery path",
    "broker.queue.classic.ClassicQueue": "how messages go out, settle and count",
    "broker.sinks.staging.StagingQueue": "a queue, and what a batch asks of one",
    "broker.stream.stream.Stream": "blocks and what readers see, after a queue's base",
    "session.connection.connection.AmqpConnection": "what channels ask of it is its base",
    "haremq.connection.HareConnection": "what the broker asks of any client is too",
}

#: The remaining number of methods that only fail, instead of `@abstractmethod`, by class.
FAILING_METHODS = {
    # Subclasses that request no messages of chunks need not override it.
    "store.recovery.replay.Replay": 1,
}


def imported(node: ast.AST, *, types: bool) -> Iterator[str]:
    """Yield the names of everything that a module imports anywhere: `a.b` and `a.b.c`.

    Imports under `TYPE_CHECKING` are included if `types`.
    """
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.module is not None, "imports are absolute"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif types or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from imported(child, types=types)


def graph_of(sources: weight.Sources, *, types: bool) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    graph = {}
    for name, tree in sources.trees.items():
        found = {other.removeprefix("leveret.") for other in imported(tree, types=types)}
        graph[name] = (found & sources.trees.keys()) - {name}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of two or more modules that all reach each other."""
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
    """Return the folders with too many modules, with their numbers of modules."""
    paths = [path for path in src.rglob("*.py") if path.name != "__init__.py"]
    counts = Counter(str(path.parent.relative_to(src)) for path in paths)
    return {folder: count for folder, count in counts.items() if count > FOLDER_MODULES_MAX}


def too_wide(found: list[set[str]]) -> list[str]:
    """Return the cycles with too many files, or with files in several folders."""
    return [
        ", ".join(sorted(circle))
        for circle in found
        if len(circle) > CIRCLE_FILES_MAX or len({name.rpartition(".")[0] for name in circle}) > 1
    ]


def test_files_import_each_other_in_no_circle(sources: weight.Sources) -> None:
    assert circles(graph_of(sources, types=False)) == []


def test_circles_of_types_lie_in_one_folder(sources: weight.Sources) -> None:
    assert too_wide(circles(graph_of(sources, types=True))) == []


def test_no_folder_is_full() -> None:
    assert over_folders(SRC) == {}


def written(folder: Path, texts: Mapping[str, str]) -> weight.Sources:
    """Write files of the package `leveret` below a folder, and read them."""
    for name, text in texts.items():
        path = folder / "leveret" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return weight.read(folder / "leveret")


def test_the_reader_sees_every_import(tmp_path: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from leveret.a.b import Two\n"
    late = "def f():\n    import leveret.a.one\n"
    texts = {
        "a/__init__.py": "",
        "a/one.py": typed,
        "a/b.py": late,
        "a/three.py": "from leveret.a import b\n",
    }
    sources = written(tmp_path, texts)
    graph = graph_of(sources, types=True)
    assert graph == {"a": set(), "a.one": {"a.b"}, "a.b": {"a.one"}, "a.three": {"a", "a.b"}}
    assert circles(graph) == [{"a.one", "a.b"}]
    assert graph_of(sources, types=False) == {**graph, "a.one": set()}


def test_a_circle_is_caught_however_long(tmp_path: Path) -> None:
    for count in range(2, CIRCLE_FILES_MAX + 2):
        ring = [f"m{number}" for number in range(count)]
        texts = {
            f"a/{name}.py": f"from leveret.a.{other} import x\n"
            for name, other in zip(ring, [*ring[1:], ring[0]], strict=True)
        }
        found = circles(graph_of(written(tmp_path, texts), types=False))
        assert found == [{f"a.{name}" for name in ring}]
        assert len(too_wide(found)) == (count > CIRCLE_FILES_MAX)


def test_a_circle_over_two_folders_is_caught() -> None:
    assert too_wide([{"a.b", "a.c"}]) == []
    assert too_wide([{"a.b", "a.c.d"}]) == ["a.b, a.c.d"]


def test_a_full_folder_is_caught(tmp_path: Path) -> None:
    written(tmp_path, {f"a/b/m{number}.py": "" for number in range(FOLDER_MODULES_MAX)})
    written(tmp_path, {"a/b/__init__.py": ""})
    assert over_folders(tmp_path) == {}
    written(tmp_path, {"a/b/one_more.py": ""})
    assert over_folders(tmp_path) == {"leveret/a/b": FOLDER_MODULES_MAX + 1}


def with_bases(name: str, classes: Mapping[str, weight.Class]) -> set[str]:
    """Return a class and all its bases, without those of other packages."""
    if name not in classes:
        return set()
    return {name}.union(*(with_bases(base, classes) for base in classes[name].bases))


def lines_of(name: str, classes: Mapping[str, weight.Class]) -> int:
    """Return the number of lines of a class with its bases, each of which is read once."""
    return sum(classes[one].lines for one in with_bases(name, classes))


def long_classes(classes: Mapping[str, weight.Class]) -> dict[str, int]:
    """Return the classes that exceed the limit with all their bases, with their lines."""
    lines = {name: lines_of(name, classes) for name in classes}
    return {name: count for name, count in lines.items() if count > CHAIN_LINES_MAX}


def failing(classes: Mapping[str, weight.Class]) -> dict[str, int]:
    """Return the classes with methods that only fail, with the number of these methods."""
    found: dict[str, int] = {}
    for name, one in classes.items():
        for method in one.methods:
            last = method.body[-1]
            before = [line for line in method.body[:-1] if not isinstance(line, ast.Expr)]
            if not before and isinstance(last, ast.Raise) and last.exc is not None:
                text = ast.unparse(last.exc)
                if text.startswith(("RuntimeError('", 'RuntimeError("')):
                    found[name] = found.get(name, 0) + 1
    return found


def test_a_class_can_be_read_from_top_to_bottom(sources: weight.Sources) -> None:
    classes = sources.classes
    assert [name for name, one in classes.items() if one.lines > CLASS_LINES_MAX] == []


def test_long_classes_have_a_reason(sources: weight.Sources) -> None:
    found = long_classes(sources.classes)
    assert {name: count for name, count in found.items() if name not in LONG_CLASSES} == {}
    assert sorted(LONG_CLASSES.keys() - found) == [], "take it out of the table"


def test_no_class_name_stands_for_two_things(sources: weight.Sources) -> None:
    """A message is one for the broker and for a client, and both shells of the client are alike."""
    places: dict[str, set[str]] = {}
    for one in sources.classes:
        place, name = re.sub(r"\.(asynchronous|blocking)\.", ".", one).rsplit(".", 1)
        places.setdefault(name, set()).add(place)
    assert [name for name, found in places.items() if len(found) > 1] == ["Message"]


def test_chains_of_classes_are_short(sources: weight.Sources) -> None:
    chains = [weight.chain(name, sources.classes) for name in sources.classes]
    assert [chain for chain in chains if len(chain) > CHAIN_CLASSES_MAX] == []


def test_a_method_for_heirs_is_abstract(sources: weight.Sources) -> None:
    found = failing(sources.classes)
    assert found == FAILING_METHODS, "use @abstractmethod, or leave the method out"


def test_a_class_counts_with_its_bases(tmp_path: Path) -> None:
    def text(line: str, lines: int) -> str:
        return f"class {line}:\n" + "    x = 1\n" * (lines - 1)

    heir = f"from leveret.base import Base\n{text('Middle(Base)', 200)}{text('Heir(Middle)', 101)}"
    classes = written(tmp_path, {"base.py": text("Base", 400), "heir.py": heir}).classes
    assert long_classes(classes) == {"heir.Heir": 701}
    assert weight.chain("heir.Heir", classes) == ["heir.Heir", "heir.Middle", "base.Base"]
    both = f"{heir}{text('Other(Base)', 10)}{text('Both(Middle, Other)', 5)}"
    classes = written(tmp_path, {"heir.py": both}).classes
    assert lines_of("heir.Both", classes) == 400 + 200 + 10 + 5, "a base is read once"


FAILING = """
class One:
    def a(self): raise RuntimeError("an heir says")
    def b(self):
        'Doc.'
        raise RuntimeError("whether")
    def c(self, name): raise RuntimeError(f"{name} is gone")
    def d(self):
        if self.x: return 1
        raise RuntimeError("no")
"""


def test_a_method_that_only_fails_is_found(tmp_path: Path) -> None:
    assert failing(written(tmp_path, {"b.py": FAILING}).classes) == {"b.One": 2}
