"""Objects are complete when they are created: `__init__` sets all their attributes.

A reader of a class finds every attribute of its objects, with the first value, in its `__init__` or
in that of a base.  And no code assigns a function to an object of another class: a callback is
passed to the constructor or to a method.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "leveret"

#: Functions that create an object.
MAKERS = ("__init__", "__new__")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the targets of a statement, each with the value if that is assigned as a whole."""
    if isinstance(node, ast.Assign):
        waiting: list[tuple[ast.expr, ast.expr | None]] = [(t, node.value) for t in node.targets]
    elif isinstance(node, ast.AugAssign | ast.For | ast.AsyncFor):
        waiting = [(node.target, None)]
    elif isinstance(node, ast.AnnAssign):
        waiting = [(node.target, node.value)] if node.value is not None else []
    elif isinstance(node, ast.withitem):
        waiting = [(node.optional_vars, None)] if node.optional_vars is not None else []
    else:
        return
    while waiting:
        target, value = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += [(each, None) for each in target.elts]
        elif isinstance(target, ast.Starred):
            waiting.append((target.value, None))
        else:
            yield target, value


def own_attributes(function: Function) -> Iterator[tuple[str, int]]:
    """Yield the attributes of `self` that a method assigns to, with their lines."""
    for node in ast.walk(function):
        for target, _ in targets(node):
            if (
                isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "self"
            ):
                yield target.attr, target.lineno


def is_dataclass(node: ast.ClassDef) -> bool:
    """Return whether the decorator `dataclass` generates the `__init__` of a class."""
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


class Sources:
    """The classes of some files by name; classes of the same name are merged."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.trees = [(name, ast.parse(text)) for name, text in texts]
        for _, tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(node)

    def given(self, node: ast.ClassDef, seen: frozenset[str] = frozenset()) -> set[str]:
        """Return the attributes that an object of a class has when it is created."""
        found: set[str] = set()
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                setter = any(ast.unparse(d).endswith(".setter") for d in each.decorator_list)
                found |= {each.name} if setter else set()
                if each.name in MAKERS:
                    found |= {name for name, _ in own_attributes(each)}
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                found |= {each.target.id} if each.value or is_dataclass(node) else set()
            else:
                found |= {t.id for t, _ in targets(each) if isinstance(t, ast.Name)}
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            if name not in seen:
                for heir in self.classes.get(name, []):
                    found |= self.given(heir, seen | {node.name, name})
        return found

    def born_later(self) -> list[str]:
        """Return each attribute that is first set by a method other than `__init__`."""
        found = []
        for nodes in self.classes.values():
            for node in nodes:
                given = self.given(node)
                methods = [each for each in node.body if isinstance(each, Function)]
                found += [
                    f"{node.name}.{name} in {method.name}, line {line}"
                    for method in methods
                    if method.name not in MAKERS
                    for name, line in own_attributes(method)
                    if name not in given
                ]
        return found

    def hooks(self) -> list[str]:
        """Return the places that assign a function or method to an attribute of another object."""
        found = []
        for name, tree in self.trees:
            for node in ast.walk(tree):
                for target, value in targets(node):
                    if not isinstance(target, ast.Attribute) or not is_hook(value):
                        continue
                    if not (isinstance(target.value, ast.Name) and target.value.id == "self"):
                        found.append(f"{name}, line {target.lineno}: {ast.unparse(target)}")
        return found


def is_hook(value: ast.expr | None) -> bool:
    """Return whether a value must be a function: a lambda, or a method with a private name."""
    return isinstance(value, ast.Lambda) or (
        isinstance(value, ast.Attribute)
        and isinstance(value.value, ast.Name)
        and value.value.id == "self"
        and value.attr.startswith("_on_")
    )


def sources() -> Sources:
    """Return all classes of Leveret."""
    files = sorted(SRC.rglob("*.py"))
    return Sources([(str(path.relative_to(SRC)), path.read_text()) for path in files])


def test_an_object_has_all_its_attributes_when_it_is_made() -> None:
    assert sources().born_later() == []


def test_nobody_hangs_a_hook_on_another_object() -> None:
    assert sources().hooks() == []


def test_an_attribute_that_comes_later_is_found() -> None:
    text = """
class Base:
    shared = 0
    declared: int

    def __init__(self) -> None:
        self.own = 1


class Heir(Base):
    def start(self) -> None:
        self.own, (self.late, *self.later) = 2, (3, 4)
        self.shared += 1
        self.declared: int = 1
        with open() as self.file:
            pass
"""
    found = {each.partition(" ")[0] for each in Sources([("a.py", text)]).born_later()}
    assert found == {"Heir.late", "Heir.later", "Heir.declared", "Heir.file"}


def test_a_dataclass_and_a_setter_give_attributes() -> None:
    text = """
@dataclass
class Row:
    count: int

    def more(self) -> None:
        self.count += 1


class Shown:
    @property
    def title(self) -> str:
        return ""

    @title.setter
    def title(self, value: str) -> None:
        print(value)

    def rename(self) -> None:
        self.title = "other"
"""
    assert Sources([("a.py", text)]).born_later() == []


def test_a_hook_is_found() -> None:
    text = """
def wire(other: Any) -> None:
    other.on_end = lambda: None
"""
    assert Sources([("a.py", text)]).hooks() == ["a.py, line 3: other.on_end"]
