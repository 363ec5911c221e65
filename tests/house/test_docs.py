"""The documentation's links resolve, and its Python compiles."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
#: The maximum number of pages in one folder.
FOLDER_PAGES_MAX = 15


def pages() -> list[Path]:
    """Return the project's Markdown pages, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.exists()]


def prose(text: str) -> str:
    """Return a page without its code blocks."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = (title.replace("`", "").lower() for title in HEADING.findall(prose(text)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def leads_somewhere(link: str, page: Path) -> bool:
    """Return whether a link on a page is an address, or resolves to a file and its heading."""
    if re.match(r"[a-z]+:", link):
        return True
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text())


def links_of(page: Path) -> list[str]:
    """Return the link targets of a page."""
    return [match[1] or match[2] for match in LINK.finditer(prose(page.read_text()))]


def broken_links(page: Path) -> Iterator[str]:
    """Yield the broken relative links of a page."""
    yield from (link for link in links_of(page) if not leads_somewhere(link, page))


def broken_code(page: Path) -> Iterator[str]:
    """Yield the faults of a page's `python` blocks."""
    for language, code in FENCE.findall(page.read_text()):
        if language.strip() == "python":
            try:
                compile(code, page.name, "exec")
            except SyntaxError as error:
                yield str(error)


def test_every_link_leads_somewhere() -> None:
    assert [f"{p.relative_to(ROOT)}: {link}" for p in pages() for link in broken_links(p)] == []


def test_every_python_block_compiles() -> None:
    assert [f"{p.relative_to(ROOT)}: {fault}" for p in pages() for fault in broken_code(p)] == []


def test_every_page_is_reached_from_the_index() -> None:
    reached = {ROOT / "docs" / "README.md"}
    waiting = list(reached)
    while waiting:
        page = waiting.pop()
        for link in links_of(page):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                waiting.append(target)
    assert [str(p) for p in pages() if p.is_relative_to(ROOT / "docs") and p not in reached] == []


def full_folders(paths: list[Path]) -> list[str]:
    """Return the folders of `paths` that hold more than `FOLDER_PAGES_MAX` pages."""
    counted = Counter(path.parent.name for path in paths)
    return sorted(folder for folder, count in counted.items() if count > FOLDER_PAGES_MAX)


def test_no_folder_of_pages_is_full() -> None:
    assert full_folders([page for page in pages() if page.is_relative_to(ROOT / "docs")]) == []


def test_a_full_folder_would_be_found() -> None:
    at_limit = [Path("docs/a") / f"{number}.md" for number in range(FOLDER_PAGES_MAX)]
    assert full_folders(at_limit) == []
    assert full_folders([*at_limit, Path("docs/a/more.md"), Path("docs/b/c.md")]) == ["a"]


def test_the_checks_catch_what_they_are_for(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title` here\n[ok](page.md) [ok](#a-title-here) [out](https://example.org)\n"
        "[bad](gone.md) [bad](page.md#gone)\n```python\nx = = 1\n```\n```text\n[code](no.md)\n```\n"
    )
    assert list(broken_links(page)) == ["gone.md", "page.md#gone"]
    assert len(list(broken_code(page))) == 1


#: An installation by the bare name, which pip would look up on an index that does not have the
#: package.
INSTALLED_BY_NAME = re.compile(r"pip install[^`]{1,40}?(?<![/\w-])leveret(?![\w/-])")


def test_nobody_is_told_to_install_a_name_that_no_index_has() -> None:
    texts = [*pages(), *sorted((ROOT / "src").rglob("*.py"))]
    told = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in texts
        for found in INSTALLED_BY_NAME.findall(path.read_text())
    ]
    assert told == []


def test_a_name_alone_would_be_found() -> None:
    for text in (
        "pip install leveret",
        "pip install 'leveret[spark]'",
        "pip install\n  -U leveret",
    ):
        assert INSTALLED_BY_NAME.search(text), text
    for text in ("pip install .", "pip install '.[spark]'", "pip install 'dist/leveret-1.whl'"):
        assert not INSTALLED_BY_NAME.search(text), text


EXTRA = re.compile(r"`(\w+)`")


def test_every_extra_is_listed_and_none_that_is_not_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    page = (ROOT / "docs/how-to/building.md").read_text()
    table = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    listed = {name for line in table.splitlines() for name in EXTRA.findall(line.split("|")[1])}
    assert listed == set(project["project"]["optional-dependencies"])


#: Statements of a page about speed or losses, which must name the command that printed them.
FIGURE = re.compile(r"times RabbitMQ|times the rate|million confirmed")


def test_figures_of_the_front_page_name_their_command_and_what_they_compare_with() -> None:
    points = re.split(r"\n(?=- )", (ROOT / "README.md").read_text())
    claims = [point for point in points if FIGURE.search(point)]
    assert len(claims) > 1
    assert [point for point in claims if "`make " not in point] == []
    compared = [point for point in claims if "RabbitMQ" in point]
    assert [point for point in compared if "RabbitMQ 3.10.8" not in point] == []


def test_losses_of_the_front_page_are_those_of_the_scoreboard() -> None:
    """The kills, the cuts and the sum of confirmed messages are in the rows of durability.md."""
    rows = re.findall(
        r"^\| Leveret, (kill -9|`kill -9`|power cut) \| ([\d,]+) \| [\d,]+ \| ([\d,]+) \| (\d+) \|",
        (ROOT / "docs/explanation/durability.md").read_text(),
        re.MULTILINE,
    )
    kills, cuts = (int(row[1].replace(",", "")) for row in rows)
    confirmed = sum(int(row[2].replace(",", "")) for row in rows)
    assert [row[3] for row in rows] == ["0", "0"]
    claim = (
        f"{kills:,} killed processes and {cuts:,} power cuts lost nothing of "
        f"{confirmed / 1e6:.1f} million confirmed messages"
    )
    assert claim in (ROOT / "README.md").read_text()
