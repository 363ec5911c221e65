"""Idioms of plain Python that mypyc silently compiles to something else.

A name has one type in a compiled function.  Two `except … as error` of different classes share the
first one's type: the second handler then raises a TypeError instead of handling.  mypy does not
report this, and the pure build works, so only a check of the source finds it.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compiled_sources() -> list[Path]:
    """The sources of all modules that setup.py compiles."""
    spec = importlib.util.spec_from_file_location("leveret_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    found: list[Path] = []
    for name in setup.COMPILED:
        path = ROOT / setup.SOURCE / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [p for p in found if setup.is_compiled(p.relative_to(ROOT / setup.SOURCE))]


def shared_names(text: str) -> Iterator[str]:
    """Yield the names that handlers of different classes share within one function."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        kinds: dict[str, set[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                kinds.setdefault(node.name, set()).add(ast.unparse(node.type))
        for name, types in kinds.items():
            if len(types) > 1:
                yield f"line {function.lineno}: {function.name} catches {sorted(types)} as {name}"


def test_handlers_of_different_kinds_have_different_names() -> None:
    sources = compiled_sources()
    assert len(sources) > 50
    offences = [
        f"{source.relative_to(ROOT)}: {offence}"
        for source in sources
        for offence in shared_names(source.read_text())
    ]
    assert offences == []


def test_shared_names_are_found() -> None:
    text = (
        "def f():\n    try:\n        pass\n    except A as error:\n        pass\n"
        "    except B as error:\n        pass\n"
    )
    assert list(shared_names(text)) == ["line 1: f catches ['A', 'B'] as error"]
    assert list(shared_names(text.replace("B as error", "B as other"))) == []


def class_defaults(text: str) -> Iterator[str]:
    """Yield the attributes of objects with their first value in the class body."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef):
            continue
        for part in node.body:
            if not isinstance(part, ast.AnnAssign) or part.value is None:
                continue
            if not ast.unparse(part.annotation).startswith(("ClassVar", "Final")):
                yield f"line {part.lineno}: {node.name}.{ast.unparse(part.target)}"


def test_objects_of_the_core_get_their_attributes_in_init() -> None:
    offences = [
        f"{source.relative_to(ROOT)}: {offence}"
        for source in compiled_sources()
        if "leveret/broker/" in source.as_posix()
        for offence in class_defaults(source.read_text())
    ]
    assert offences == []


def test_class_defaults_are_found() -> None:
    text = "class A:\n    late: int = 0\n    named: int\n    kind: ClassVar[int] = 1\n"
    assert list(class_defaults(text)) == ["line 2: A.late"]
