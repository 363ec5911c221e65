"""The pages that list what the code holds list all of it: limits, reply codes, queue arguments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leveret import errors, limits

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(page: Path) -> dict[str, list[str]]:
    """Return the rows of a page's tables by their first cell, without its backquotes."""
    found: dict[str, list[str]] = {}
    for line in page.read_text().splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(cells[0].strip("`"), cells[1:])
    return found


def test_every_limit_is_listed_with_its_value() -> None:
    listed = {
        name: cells[0]
        for name, cells in rows(DOCS / "reference/operation/limits.md").items()
        if name.isupper()
    }
    assert listed == {
        name: f"{value:,}" for name, value in vars(limits).items() if isinstance(value, int)
    }


@pytest.mark.parametrize("table", [errors.SOFT_ERRORS, errors.HARD_ERRORS], ids=["soft", "hard"])
def test_every_reply_code_is_listed_with_its_name_and_class(
    table: dict[int, type[errors.AmqpError]],
) -> None:
    lines = (DOCS / "reference/broker/errors.md").read_text().splitlines()
    starts = [f"| {code} | {kind.name} | `{kind.__name__}` | " for code, kind in table.items()]
    assert [s for s in starts if sum(line.startswith(s) for line in lines) != 1] == []


def test_every_queue_argument_is_listed() -> None:
    source = (ROOT / "src/leveret/broker/values/arguments.py").read_text()
    known = set(re.findall(r'"(x-[a-z-]+)"', source))
    compared = set(re.findall(r'"(x-[a-z-]+)"', source.split("_COMPARED")[1].split(")")[0]))
    table = rows(DOCS / "reference/broker/queues.md")
    listed = {name for name in table if name.startswith("x-")}
    assert known
    assert listed == known
    assert {name for name in listed if table[name][1] == "yes"} == compared


def test_every_behaviour_that_has_a_test_is_said_to_be_met() -> None:
    names = "\n".join(p.read_text() for p in sorted((ROOT / "tests" / "protocol").glob("*.py")))
    tested = {int(number) for number in re.findall(r"def test_b(\d+)_", names)}
    table = rows(DOCS / "reference/clients/compatibility.md")
    said = {int(number): cells[1] for number, cells in table.items() if number.isdigit()}
    assert sorted(said) == list(range(1, 76))
    assert {number for number, state in said.items() if not state.startswith("not yet")} == tested
