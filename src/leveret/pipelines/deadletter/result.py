"""The result of the dead-letter job: groups of letters, with their first and last letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.pages.bars import Bar


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, with the fields that a page shows."""

    stream: str
    offset: int | None
    exchange: str
    routing_key: str
    died_at: datetime | None
    died_times: int
    error: str
    body: str


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Letters with the same queue, reason and kind of error.

    `kind` is the error's text without the parts that differ from letter to letter.
    """

    reason: str
    queue: str
    fingerprint: str
    kind: str
    letters: int
    bytes: int
    first: Letter
    last: Letter


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """All dead letters; `others` is the number of messages that are not dead letters.

    `bars` are counts of letters over time; a bar's rank is the index of its queue and reason in
    `ends`.
    """

    source: str
    letters: int
    bytes: int
    others: int
    groups: tuple[DeadLetterGroup, ...]
    groups_total: int
    ends: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    bar_seconds: int
