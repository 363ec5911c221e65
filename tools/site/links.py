"""A hook of MkDocs: pages from outside `docs/`, and links that GitHub resolves but MkDocs does not.

The Markdown files at the root of the project become pages.  A link to a folder of pages leads to
its first page.  A link to any other file or folder of the project leads to the repository.
Headings have the same anchors as on GitHub.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: The pages at the root.  The README is for those who have found the repository.
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

#: The target of a link in Markdown: inline, or defined by a reference.
TARGET = re.compile(r"(?<=\]\()[^)\s]+(?=\))|(?<=\]: )\S+")

#: A block of code, which contains no links.
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)

#: The pages in the order of the navigation.
_ordered: list[Path] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the anchors of headings as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_nav(nav: Navigation, **_: object) -> Navigation:
    """Keep the order of the pages."""
    _ordered[:] = [source(page) for page in nav.pages]
    return nav


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Change the targets of the links that MkDocs cannot resolve."""
    place, address = source(page), config.extra["sources"]

    def changed(text: str) -> str:
        return TARGET.sub(lambda found: resolved(found[0], place, address), text)

    parts: list[str] = []
    end = 0
    for code in CODE.finditer(markdown):
        parts += [changed(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, changed(markdown[end:])])


def source(page: Page) -> Path:
    """Return the file of a page."""
    assert page.file.abs_src_path is not None
    return Path(page.file.abs_src_path).resolve()


def resolved(link: str, page: Path, address: str) -> str:
    """Return the target of a link on the site; a link that leads nowhere is returned unchanged."""
    name, mark, anchor = link.partition("#")
    target = (page.parent / name).resolve()
    if not name or re.match(r"[a-z]+:", name) or not target.exists():
        return link
    if target.is_dir():
        inside = [one for one in _ordered if one.is_relative_to(target)]
        if not inside:
            return f"{address}/tree/main/{target.relative_to(ROOT)}"
        target = inside[0]
    if target in _ordered or target.is_relative_to(DOCS):
        return os.path.relpath(place_of(target), place_of(page).parent) + mark + anchor
    return f"{address}/blob/main/{target.relative_to(ROOT)}{mark}{anchor}"


def place_of(file: Path) -> Path:
    """Return the place of a page's source on the site, relative to its root."""
    return file.relative_to(DOCS if file.is_relative_to(DOCS) else ROOT)
