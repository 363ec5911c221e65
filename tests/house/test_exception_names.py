"""In compiled modules, a name bound by `except … as` has one type per function.

mypyc gives each local name one type: a second `except` that binds an exception of another class to
the same name raises TypeError instead of handling it, only in the compiled build.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "leveret"
ROOMS = ("broker", "session", "haremq", "store", "wire", "routing")
#: What does I/O is not compiled, nor what uses the protobuf package.
COMPILED = [
    path
    for room in ROOMS
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if path.name not in {"disk.py", "listener.py", "protobuf_codec.py"}
] + [PACKAGE / f"{name}.py" for name in ("chunk", "clock", "errors", "limits", "message")]


def names_of_two_types(text: str) -> Iterator[str]:
    """Yield each exception name with several types in one function."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        types: defaultdict[str, set[str]] = defaultdict(set)
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                types[node.name].add(ast.unparse(node.type))
        for name, caught in types.items():
            if len(caught) > 1:
                yield f"{function.name} binds {name} to {sorted(caught)}"


def test_the_measure_catches_what_it_is_for() -> None:
    handlers = "  try: pass\n  except A as a: pass\n  except B as {}: pass\n"
    assert list(names_of_two_types("def f():\n" + handlers.format("b"))) == []
    found = list(names_of_two_types("def f():\n" + handlers.format("a")))
    assert found == ["f binds a to ['A', 'B']"]


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_name_of_exceptions_has_one_type(path: Path) -> None:
    assert list(names_of_two_types(path.read_text(encoding="utf-8"))) == []
