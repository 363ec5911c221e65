"""The result of one run of an archive, with its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: when it began, how long it took, and the messages in it."""

    number: int
    began: datetime
    seconds: float
    records: int


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of one run: `records` messages, the last of each stream before its next offset.

    `next_offset` is that of a single stream; None if there were no streams, or several.
    `first_offsets` are where the run began, and `steps` its last batches, `STEPS_KEPT` at most.
    """

    path: str
    stream: str
    records: int
    batches: int
    next_offset: int | None
    next_offsets: Mapping[str, int]
    first_offsets: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Batch, ...] = ()
