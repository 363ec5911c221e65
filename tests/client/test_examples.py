"""Every example of docs/client.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
URI = "amqp://guest:guest@localhost:5672/"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_documentation(broker_uri: str, number: int) -> None:
    example = EXAMPLES[number]
    assert URI in example
    exec(compile(example.replace(URI, broker_uri), str(PAGE), "exec"), {})  # noqa: S102
