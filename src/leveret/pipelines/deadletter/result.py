"""The result of the dead-letter job: groups of letters, with their first and last letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.pages.bars import Bar


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, with the fields to show."""

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
    """Letters that died in one queue, for one reason and with one kind of error.

    `kind` is the error without the parts that differ from letter to letter.
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
    """All dead letters; `others` counts messages that are no dead letters.

    `bars` count letters over time, by their place in `ends`: queue and reason.
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
