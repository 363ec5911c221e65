"""Count what makes the core heavy to read, and print it.

    weight.py [--src FOLDER] [--list FIGURE] [ROOM]…

Without arguments it counts in `broker` and `session` of the sources beside it.  `--list` prints the
places that a figure counts instead: `weight.py --list comparisons`.  `tests/house/test_weight.py`
holds some of these figures.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

SRC: Final = Path(__file__).parents[1] / "src" / "leveret"
ROOMS: Final = ("broker", "session")

#: The only room whose business is who works when and for how long.
SCHEDULER: Final = "broker.scheduler."

#: Attributes that say what was spent (`Scheduler.spent`) or what is left to spend (`left_for_…`).
#: A private one is the class's own.
_SPENT: Final = re.compile(r"([a-z]\w*_)?(steps|cost|spent|work_done)|left_for_\w+")
_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: Words for shares of the processor's time, in names and prose; `round(x)` is Python's.
_STEPS: Final = re.compile(r"(?<![a-z])steps(?![a-z])", re.IGNORECASE)
_SHARES: Final = re.compile(
    r"(?<![a-z])(steps?|slices?|sliced|rounds?)(?![a-z])(?!\()", re.IGNORECASE
)

#: Methods that continue a loop, parameters that say how far, and methods that only end it.
_CONTINUING: Final = frozenset({"step", "advance", "go_on"})
_BUDGETS: Final = frozenset({"last", "steps"})
_ENDING: Final = frozenset({"ended", "reply", "is_awaited", "give_up"})


@dataclass
class Class:
    """A class: where it stands, its methods, and the whole names of its bases."""

    place: str
    node: ast.ClassDef
    bases: list[str]

    @property
    def lines(self) -> int:
        """Its lines, without those of its bases."""
        return (self.node.end_lineno or self.node.lineno) - self.node.lineno + 1

    @property
    def methods(self) -> list[ast.FunctionDef]:
        """Its methods, those with two underlines apart."""
        found = [node for node in self.node.body if isinstance(node, ast.FunctionDef)]
        return [method for method in found if not method.name.startswith("__")]


@dataclass
class Sources:
    """Modules by name, and their classes."""

    texts: dict[str, str] = field(default_factory=dict)
    trees: dict[str, ast.Module] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)

    def within(self, rooms: Sequence[str]) -> Sources:
        """Return the part of it in these rooms."""
        prefixes = tuple(f"{room}." for room in rooms)

        def chosen(name: str) -> bool:
            return f"{name}.".startswith(prefixes)

        return Sources(
            {name: text for name, text in self.texts.items() if chosen(name)},
            {name: tree for name, tree in self.trees.items() if chosen(name)},
            {name: one for name, one in self.classes.items() if chosen(name)},
        )


def read(src: Path) -> Sources:
    """Return the modules below `src`, the package's folder."""
    found = Sources()
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        tree = ast.parse(text)
        found.texts[module] = text
        found.trees[module] = tree
        names = {
            alias.asname or alias.name: f"{node.module}.{alias.name}".removeprefix(f"{src.name}.")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        names |= {node.name: f"{module}.{node.name}" for node in nodes}
        for node in nodes:
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            found.classes[f"{module}.{node.name}"] = Class(
                f"{module}:{node.lineno} {node.name}",
                node,
                [names.get(ast.unparse(base), ast.unparse(base)) for base in bases],
            )
    return found


def _reads_spent(node: ast.expr, copies: set[str]) -> bool:
    """Return whether an expression is what was spent, or a sum or the least of it and others."""
    if isinstance(node, ast.Attribute):
        return _SPENT.fullmatch(node.attr) is not None
    if isinstance(node, ast.Name):
        return node.id in copies
    if isinstance(node, ast.BinOp):
        return _reads_spent(node.left, copies) or _reads_spent(node.right, copies)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"min", "max", "i64"}:
        return any(_reads_spent(argument, copies) for argument in node.args)
    return False


def comparisons(sources: Sources) -> Iterator[str]:
    """Yield each comparison of spent cost with a budget.

    One side is an attribute that counts cost, or arithmetic with one, or a local name for that.  A
    constant that ends in `_MAX` is no budget but a limit of the input.
    """
    for module, tree in sources.trees.items():
        if f"{module}.".startswith(SCHEDULER):
            continue
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            copies: set[str] = set()
            for node in ast.walk(function):
                if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if _reads_spent(node.value, copies):
                        copies |= {one.id for one in targets if isinstance(one, ast.Name)}
            for node in ast.walk(function):
                if isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDERED):
                    sides = [node.left, *node.comparators]
                    limited = any(ast.unparse(side).endswith("_MAX") for side in sides)
                    if not limited and any(_reads_spent(side, copies) for side in sides):
                        yield f"{module}:{node.lineno} {ast.unparse(node)}"


def loops(sources: Sources) -> Iterator[str]:
    """Yield each class that only continues a loop.

    A public method of it continues (by its name, or because it takes a budget, which is not the end
    of a range), and beside those that end the loop it has one other public method at most.
    """
    for name, one in sources.classes.items():
        public = [method for method in one.methods if not method.name.startswith("_")]
        continuing = set()
        for method in public:
            parameters = {arg.arg for arg in method.args.args}
            budgeted = _BUDGETS & parameters and "first" not in parameters
            if budgeted or method.name in _CONTINUING:
                continuing.add(method.name)
        others = {method.name for method in public} - continuing - _ENDING
        if continuing and len(others) <= 1 and not name.startswith(SCHEDULER):
            yield one.place


def speakers(sources: Sources, words: re.Pattern[str]) -> Iterator[str]:
    """Yield each module outside of the scheduler that uses one of these words."""
    for module, text in sources.texts.items():
        count = len(words.findall(text))
        if count and not f"{module}.".startswith(SCHEDULER):
            yield f"{module} {count}"


def chain(name: str, classes: dict[str, Class]) -> list[str]:
    """Return a class with its bases, in the longest line that there is."""
    if name not in classes:
        return []
    lines = [chain(base, classes) for base in classes[name].bases]
    return [name, *max(lines, key=len, default=[])]


def single_bases(sources: Sources) -> list[tuple[str, str]]:
    """Return each base that has exactly one direct heir in all of the sources, with that heir."""
    heirs: dict[str, list[str]] = defaultdict(list)
    for name, one in sources.classes.items():
        for base in one.bases:
            heirs[base].append(name)
    return sorted(
        (base, found[0])
        for base, found in heirs.items()
        if base in sources.classes and len(found) == 1
    )


def statements(trees: Iterable[ast.AST]) -> int:
    """Return how many statements there are, without imports and docstrings."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for tree in trees
        for node in ast.walk(tree)
    )


def listings(everything: Sources, rooms: Sequence[str]) -> dict[str, list[str]]:
    """Return what is counted, by the name of the figure."""
    sources = everything.within(rooms)
    chains = [chain(name, everything.classes) for name in sources.classes]
    chains.sort(key=len, reverse=True)
    pairs = single_bases(everything)
    return {
        "comparisons": list(comparisons(sources)),
        "loops": list(loops(sources)),
        "steps": list(speakers(sources, _STEPS)),
        "shares": list(speakers(sources, _SHARES)),
        "chains": [f"{len(one)} {' < '.join(one)}" for one in chains if len(one) > 1],
        "bases": [f"{base} < {heir}" for base, heir in pairs],
        "bases here": [f"{base} < {heir}" for base, heir in pairs if base in sources.classes],
    }


def table(everything: Sources, rooms: Sequence[str]) -> list[tuple[str, int | float]]:
    """Return the figures with what each of them counts."""
    sources = everything.within(rooms)
    listed = listings(everything, rooms)
    lines = sorted(text.count("\n") for text in sources.texts.values())
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in sources.trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    return [
        ("comparisons of spent cost with a budget", len(listed["comparisons"])),
        ("classes that only continue a loop", len(listed["loops"])),
        ("files that speak of steps", len(listed["steps"])),
        ("files that speak of steps, slices or rounds", len(listed["shares"])),
        ("deepest chain of classes", int(listed["chains"][0].split()[0])),
        ("bases with exactly one heir, in all rooms", len(listed["bases"])),
        ("bases with exactly one heir, here", len(listed["bases here"])),
        ("statements", statements(sources.trees.values())),
        ("classes", len(sources.classes)),
        ("modules", len(lines)),
        ("lines", sum(lines)),
        ("lines of a module, median", median(lines)),
        ("lines of a function, median", median(functions)),
    ]


def main() -> None:
    """Print the table, or what one figure counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooms", nargs="*", default=ROOMS, metavar="ROOM")
    parser.add_argument("--src", type=Path, default=SRC, help="the package's folder")
    parser.add_argument("--list", dest="figure", help="comparisons, loops, steps, shares, …")
    arguments = parser.parse_args()
    everything = read(arguments.src)
    if arguments.figure is not None:
        print(*listings(everything, arguments.rooms)[arguments.figure], sep="\n")
        return
    for what, count in table(everything, arguments.rooms):
        print(f"{count:>10,}  {what}")


if __name__ == "__main__":
    main()
