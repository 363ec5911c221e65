"""The site has every page and every public name of the Python API, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SRC = ROOT / "src"

#: The modules of the Python API.
MODULES = (
    "leveret",
    "leveret.client",
    "leveret.client.blocking",
    "leveret.errors",
    "leveret.pipelines",
    "leveret.spark",
    "leveret.testing",
)

#: Names that the reference shows besides: of modules that need a package of their own, and the
#: types of what public names return.
BESIDES = {
    "leveret.client.opentelemetry.Tracing",
    "leveret.spark.lag.Lag",
    "leveret.spark.listener.LagListener",
    "leveret.spark.listener.watch_writes",
    "leveret.spark.write.result.WriteResult",
    "leveret.testing.plugin",
}

#: The types of what the pipelines' results contain.
INSIDE_RESULTS = re.compile(
    r"leveret\.pipelines\.(\w+\.result\.\w+|lakes\.base\.TableSize|replay\.sending\.Step)"
)

#: A name in the reference, which MkDocs replaces by the docstring.
SHOWN = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def pages_in(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation, or of a part of one."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(part)


def tree_of(module: str) -> ast.Module:
    """Return the tree of a module, which need not be imported."""
    path = SRC / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text())


def public_in(module: str) -> set[str]:
    """Return the public names of a module, or its classes if it does not list names."""
    tree = tree_of(module)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {name for name in ast.literal_eval(node.value) if name != "__version__"}
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def public_name(shown: str) -> str:
    """Return a name in the reference as a public one.

    A function is shown by its own module if a folder of the package has the same name.
    """
    package = ".".join(shown.split(".")[:2])
    for node in tree_of(package).body if package in MODULES else ():
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                if shown == f"{node.module}.{name.name}":
                    return f"{package}.{name.asname or name.name}"
    return shown


def test_the_navigation_has_every_page_once() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = sorted(pages_in(config["nav"]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    of_root = {page.name for page in ROOT.glob("*.md")} - {"README.md"}
    assert listed == sorted(pages | of_root)


def test_the_reference_has_every_public_name_once() -> None:
    pages = (DOCS / "reference/python").glob("*.md")
    shown = [public_name(name) for page in pages for name in SHOWN.findall(page.read_text())]
    public = {f"{module}.{name}" for module in MODULES for name in public_in(module)}
    named = [name for name in shown if not INSIDE_RESULTS.fullmatch(name)]
    assert sorted(named) == sorted(public | BESIDES)
    assert len(shown) == len(set(shown))


def test_pages_and_names_are_read() -> None:
    nav = [{"A": "a.md"}, {"B": ["b.md", {"C": "c.md"}]}]
    assert list(pages_in(nav)) == ["a.md", "b.md", "c.md"]
    assert SHOWN.findall("# A\n\n::: a.b\n    options:\n::: c\n") == ["a.b", "c"]
    assert {"Broker", "VirtualHost"} < public_in("leveret.testing")
    assert {"AmqpError", "NotFound"} < public_in("leveret.errors")
    assert public_name("leveret.spark.session.session") == "leveret.spark.session"
    assert public_name("leveret.client.Pool") == "leveret.client.Pool"
