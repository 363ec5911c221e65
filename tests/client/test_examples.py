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

#: All but those for Spark, which need more and run elsewhere.
EXAMPLES = [
    pytest.param(page, block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()))
    if "spark" not in block
]


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_the_examples_of_the_documentation(
    broker_uri: str, page: Path, example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = example.replace(URI, broker_uri.removesuffix("%2F"))
    exec(compile(code, str(page), "exec"), {})  # noqa: S102
    if expected := PRINTED.findall(example):
        assert capsys.readouterr().out.splitlines() == expected


def test_the_pages_have_examples() -> None:
    pages = {str(example.id).rpartition("-")[0] for example in EXAMPLES}
    assert {"README", "client", "queues", "consumers", "publishing", "streams"} <= pages
