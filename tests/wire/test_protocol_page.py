"""The page on the protocol names every method, type and limit of the wire as the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leveret import limits
from leveret.errors import SyntaxFault
from leveret.wire.spec import CLASSES, ClassSpec
from leveret.wire.tables import read_entries

PAGE = (Path(__file__).parents[2] / "docs/reference/broker/protocol.md").read_text(encoding="utf-8")
LETTERS = re.findall(r"^\| `(\w)` \|", PAGE, re.MULTILINE)
LIMITS = re.findall(r"\| ([\d,]+) \| `(\w+)` \|", PAGE)


@pytest.mark.parametrize("spec", CLASSES, ids=lambda spec: str(spec.name))
def test_every_method_is_on_the_page(spec: ClassSpec) -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {spec.name} ("))
    assert f"({spec.class_id})" in row
    for method in spec.methods:
        assert re.search(rf"\b{re.sub('-ok$', '', method.name)}\b", row), method.full_name


def test_every_type_that_is_read_is_on_the_page() -> None:
    read = set()
    for kind in range(256):
        # No value of a fixed size is longer, and a size of zero suits the others.
        for size in range(9):
            raw = b"\x01k" + bytes((kind,)) + bytes(size)
            try:
                read_entries(raw, 0, len(raw))
            except SyntaxFault:
                continue
            read.add(chr(kind))
    assert read == set(LETTERS)
    assert len(LETTERS) == 18


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert len(LIMITS) == 5
    for value, name in LIMITS:
        assert int(value.replace(",", "")) == getattr(limits, name)
