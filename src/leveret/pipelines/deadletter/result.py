"""What a look at dead letters found: groups of them, with their first and last letter."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.pages.plots import Bar


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter, as much of it as a person wants to see."""

    stream: str
    offset: int | None
    exchange: str
    routing_key: str
    died_at: datetime | None
    died_times: int
    error: str
    body: str


@dataclass(frozen=True, slots=True)
class Group:
    """Letters that died in one queue, for one reason and of one kind of error.

    `kind` is the error without what differs from letter to letter.
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
    """What there is of dead letters; `others` are messages that are none.

    `bars` count letters over time, by their place in `ends`: queue and reason.
    """

    source: str
    letters: int
    bytes: int
    others: int
    groups: tuple[Group, ...]
    groups_total: int
    ends: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    bar_seconds: int
