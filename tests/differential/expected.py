"""The differences that are expected, one file for each reason: `expected/<id>.diff`.

    @@ queues.passive_missing
    - a1 < what RabbitMQ answers
    + a1 < what Leveret answers

Each block is one place of one script.  It holds for both releases of RabbitMQ, or for the one that
`@@ 3.10 queues.passive_missing` or `@@ 4.3 queues.passive_missing` names.
`docs/reference/clients/differences.md` explains each id.

Those of 4.3 are recorded for one version.  Debian's next release may have a newer one, whose
differences are shown but do not fail the test.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from differential.stage import Host
from differential.transcript import Hunk, show_hunk

DIRECTORY: Final = Path(__file__).parent / "expected"
PAGE: Final = Path(__file__).parents[2] / "docs/reference/clients/differences.md"

#: The releases that are compared: the one that Debian 12 has, and the next one.
RELEASES: Final = ("3.10", "4.3")

#: The version of the next release whose differences are recorded.
RECORDED: Final = "4.3.6"

#: A row of the page's table: an id, then RabbitMQ 3.10.8, 4.3.6, Leveret and the reason.
ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$", re.MULTILINE)

#: What the page says where a release does the same as Leveret.
SAME: Final = "as Leveret"


@dataclass(frozen=True)
class Place:
    """What differs at one place of a script, and in which releases."""

    script: str
    hunk: Hunk
    releases: tuple[str, ...] = RELEASES


@dataclass(frozen=True)
class Everywhere:
    """What a release does in so many scripts that only one of them records it.

    In the other scripts, `found` is replaced by `instead` in lines that Leveret did not write.
    """

    release: str
    script: str
    found: re.Pattern[str]
    instead: str


EVERYWHERE: Final = (
    Everywhere(
        "4.3", "dead_letters.rejected",
        re.compile(r"redelivered=True (?=.*x-death=)"), "redelivered=False ",
    ),
    Everywhere(
        "4.3", "queue_types.stream_offset_next",
        re.compile(r"delivery_mode=o:1, (?=.*x-stream-offset)"), "",
    ),
)  # fmt: skip


def release(host: Host) -> str:
    """Return the release of a RabbitMQ; an unknown version counts as the newest."""
    return next((one for one in RELEASES if host.version.startswith(f"{one}.")), RELEASES[-1])


def is_recorded(host: Host) -> bool:
    """Return whether the differences of a RabbitMQ are recorded, so that new ones are faults."""
    return release(host) != RELEASES[-1] or host.version == RECORDED


def levelled(host: Host, script: str, theirs: list[str], ours: list[str]) -> list[str]:
    """Return RabbitMQ's lines after the replacements of `EVERYWHERE`."""
    rules = [e for e in EVERYWHERE if e.release == release(host) and e.script != script]
    same = set(ours)
    lines = []
    for line in theirs:
        for rule in rules if line not in same else ():
            line = rule.found.sub(rule.instead, line)  # noqa: PLW2901 - one rule after the other
        lines.append(line)
    return lines


def read() -> dict[str, list[Place]]:
    """Return the expected differences by id: scripts and what differs there."""
    return {path.stem: list(places(path.read_text())) for path in sorted(DIRECTORY.glob("*.diff"))}


def places(text: str) -> list[Place]:
    """Return the blocks of a file."""
    found = []
    for block in text.split("@@ ")[1:]:
        head, *lines = block.splitlines()
        one, _, name = head.rpartition(" ")
        assert one in {"", *RELEASES}, head
        lines = [line for line in lines if line]
        assert all(line[:2] in {"- ", "+ "} for line in lines), f"{name}: {lines}"
        ours = tuple(line[2:] for line in lines if line[0] == "+")
        theirs = tuple(line[2:] for line in lines if line[0] == "-")
        found.append(Place(name, (theirs, ours), (one,) if one else RELEASES))
    return found


def explained() -> dict[str, tuple[str, str]]:
    """Return the ids that the page explains, with what it says of each release."""
    return {row[0]: (row[1].strip(), row[2].strip()) for row in ROW.findall(PAGE.read_text())}


def judge(
    host: Host, script: str, found: list[Hunk], expected: dict[str, list[Place]]
) -> list[str]:
    """Return what is wrong with the differences of a script: the unexpected and the missing."""
    one = release(host)
    wanted = Counter(
        place.hunk
        for all_ in expected.values()
        for place in all_
        if place.script == script and one in place.releases
    )
    seen = Counter(found)
    head = f"@@ {one} {script}"
    faults = [f"unexpected:\n{head}\n{show_hunk(h)}" for h in (seen - wanted).elements()]
    gone = (wanted - seen).elements()
    return faults + [f"expected, and gone:\n{head}\n{show_hunk(hunk)}" for hunk in gone]
