"""The differences that are expected, one file for each reason: `expected/<id>.diff`.

    @@ queues.passive_missing
    - a1 < what RabbitMQ answers
    + a1 < what Leveret answers

Each block is one place of one script.  `docs/reference/clients/differences.md` explains each id.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from differential.transcript import Hunk, show_hunk

DIRECTORY: Final = Path(__file__).parent / "expected"
PAGE: Final = Path(__file__).parents[2] / "docs/reference/clients/differences.md"

#: An id begins a row of the page's table.
ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \|", re.MULTILINE)

Place = tuple[str, Hunk]


def read() -> dict[str, list[Place]]:
    """Return the expected differences by id: scripts and what differs there."""
    return {path.stem: list(places(path.read_text())) for path in sorted(DIRECTORY.glob("*.diff"))}


def places(text: str) -> list[Place]:
    """Return the blocks of a file."""
    found = []
    for block in text.split("@@ ")[1:]:
        name, *lines = block.splitlines()
        lines = [line for line in lines if line]
        assert all(line[:2] in {"- ", "+ "} for line in lines), f"{name}: {lines}"
        ours = tuple(line[2:] for line in lines if line[0] == "+")
        theirs = tuple(line[2:] for line in lines if line[0] == "-")
        found.append((name, (theirs, ours)))
    return found


def explained() -> set[str]:
    """Return the ids that the page explains."""
    return set(ROW.findall(PAGE.read_text()))


def judge(name: str, found: list[Hunk], expected: dict[str, list[Place]]) -> list[str]:
    """Return what is wrong with the differences of a script: the unexpected and the missing."""
    wanted = Counter(hunk for all_ in expected.values() for script, hunk in all_ if script == name)
    seen = Counter(found)
    faults = [f"unexpected:\n@@ {name}\n{show_hunk(h)}" for h in (seen - wanted).elements()]
    gone = (wanted - seen).elements()
    return faults + [f"expected, and gone:\n@@ {name}\n{show_hunk(hunk)}" for hunk in gone]
