"""Work that the broker does in one place only.

The numbers of the memory account are changed only by its own methods; one module opens the chunks
of queues and reports their damage.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "leveret"
ACCOUNT = SRC / "broker" / "scheduler" / "memory.py"
#: Fields that other modules may set: the memory limits of queues.
SETTINGS = {"window_bytes", "window_mask", "page_bytes", "overfull"}


def written(function: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that are written anywhere in a part of a module."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def is_own(attribute: ast.Attribute) -> bool:
    """Return whether an attribute belongs to `self`."""
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def born(kind: ast.ClassDef) -> set[str]:
    """Return the attributes that the `__init__` of a class sets."""
    return {
        attribute.attr
        for function in kind.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for attribute in written(function)
        if is_own(attribute)
    }


def foreign_writes(text: str, fields: set[str]) -> Iterator[str]:
    """Yield the places that write one of `fields`, except in their own class."""
    module = ast.parse(text)
    own = {
        id(attribute)
        for kind in ast.walk(module)
        if isinstance(kind, ast.ClassDef)
        for attribute in written(kind)
        if is_own(attribute) and attribute.attr in born(kind)
    }
    for attribute in written(module):
        if attribute.attr in fields and id(attribute) not in own:
            yield f"line {attribute.lineno}: {ast.unparse(attribute)}"


def account_fields() -> set[str]:
    """Return the fields of the account."""
    (kind,) = (
        node for node in ast.parse(ACCOUNT.read_text()).body if isinstance(node, ast.ClassDef)
    )
    return born(kind) - SETTINGS


def test_nobody_writes_the_numbers_of_the_account() -> None:
    fields = account_fields()
    assert {"held_bytes", "held_messages", "assembling_bytes", "unchunked_bytes"} <= fields
    offences = [
        f"{path.relative_to(SRC)}: {offence}"
        for path in sorted(SRC.rglob("*.py"))
        if path != ACCOUNT
        for offence in foreign_writes(path.read_text(), fields)
    ]
    assert offences == []


def test_foreign_writes_are_found() -> None:
    text = (
        "class Queue:\n    def __init__(self):\n        self.held = 0\n"
        "    def take(self):\n        self.held += 1\n        self.core.held += 1\n"
        "class Core(Account):\n    def take(self):\n        self.held -= 1\n"
        "def late(core):\n    core.held = core.other = 0\n"
    )
    assert sorted(foreign_writes(text, {"held"})) == [
        "line 11: core.held",
        "line 6: self.core.held",
        "line 9: self.held",
    ]


CHUNK_READER = SRC / "broker" / "backlog" / "damage.py"


def called(text: str, names: set[str]) -> Iterator[str]:
    """Yield the places that call one of the functions or classes by its name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield f"line {node.lineno}: {node.func.id}"


def test_one_module_of_the_broker_opens_chunks_and_reports_their_damage() -> None:
    names = {"check_chunk", "DamagedChunk"}
    assert {place.split()[-1] for place in called(CHUNK_READER.read_text(), names)} == names
    offences = [
        f"{path.relative_to(SRC)}: {offence}"
        for path in sorted((SRC / "broker").rglob("*.py"))
        if path != CHUNK_READER
        for offence in called(path.read_text(), names)
    ]
    assert offences == []


#: Tests of the scheduler's work and counts, and their helpers.  All others check what clients see:
#: `Node.rests` returns whether the broker is idle, and `Node.judged` limits each call.
LOOKS_AT_THE_SCHEDULER = {
    "broker/test_scheduler.py": "the scheduler itself",
    "haremq/test_hostile.py": "a flush of HareMQ's is no call that a table could make",
    "hostile/test_counted.py": "the table of what requests count",
    "hostile/test_dead_letters.py": "the letters that wait hold messages",
    "hostile/test_long_operations.py": "the letters of a transaction wait",
    "hostile/test_policy_cost.py": "the dead letters of a new length limit wait",
    "house/test_weight.py": "what the reader of sources finds",
    "model/operations.py": "starts an import as a route does",
    "model/stepped.py": "stops at each yield",
    "model/test_operations.py": "the table of long operations",
    "replay/drive.py": "the shell's loop",
    "support/costs/cost_gauge.py": "the gauge of all calls",
    "support/node/core.py": "the shell's loop, and the bound on each call",
    "support/node/importing.py": "starts an import as a route does",
}
LOOK = re.compile(
    r"\bscheduler\.(spent|tasks|continue_tasks|has_more|resume|input_end|letters|dispatchers|start)\b"
)


def test_few_tests_look_into_the_scheduler() -> None:
    tests = Path(__file__).parents[1]
    looks = {
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if LOOK.search(path.read_text())
    }
    assert looks == set(LOOKS_AT_THE_SCHEDULER)
