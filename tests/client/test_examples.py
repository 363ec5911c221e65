"""Every example of the pages runs as it stands, and prints what the comment beside it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
URI = "amqp://guest:guest@localhost:5672/"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)

#: The programs of the page that compares libraries.
LIBRARIES = ("Leveret", "aio-pika", "kombu")
PROGRAM = re.compile(rf"^({'|'.join(LIBRARIES)}):\n\n{BLOCK.pattern[1:]}", re.MULTILINE | re.DOTALL)

#: All but those that need more: Spark's, and the files of the frameworks' projects
#: (`tests/interop/test_framework_pages.py`).
EXAMPLES = [
    pytest.param(page, block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()))
    if "spark" not in block and page.parent.name != "frameworks"
]


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_the_examples_of_the_documentation(
    broker_uri: str, page: Path, example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = example.replace(URI, broker_uri.removesuffix("%2F"))
    exec(compile(code, str(page), "exec"), {})  # noqa: S102
    if expected := PRINTED.findall(example):
        assert capsys.readouterr().out.splitlines() == expected


def test_the_programs_are_shorter_than_those_of_other_libraries() -> None:
    page = (ROOT / "docs/how-to/from-aio-pika.md").read_text()
    rows = []
    for section in page.split("\n## ")[1:]:
        sizes = {library: len("".join(text.split())) for library, text in PROGRAM.findall(section)}
        if sizes:
            ours = sizes["Leveret"]
            assert [library for library, size in sizes.items() if size <= ours] == ["Leveret"]
            title = section.partition("\n")[0]
            figures = [sizes.get(one, "none") for one in LIBRARIES]
            rows.append(f"| {title} | {' | '.join(map(str, figures))} |")
    assert len(rows) == 10
    assert "\n".join(rows) in page


def test_the_pages_have_examples() -> None:
    pages = {str(example.id).rpartition("-")[0] for example in EXAMPLES}
    assert {"README", "client", "queues", "consumers", "publishing", "streams"} <= pages
