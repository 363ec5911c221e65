"""The result of a run of the archive job, with its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: its start, its duration, and the number of its messages."""

    number: int
    began: datetime
    seconds: float
    records: int


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of a run, which archived `records` messages.

    `first_offsets` are the offsets of the streams at the start of the run, and `next_offsets` those
    after its end.  `next_offset` is the next offset of a single stream, or None if there were no
    streams, or several.  `steps` has the last batches, at most `STEPS_KEPT`.
    """

    path: str
    stream: str
    records: int
    batches: int
    next_offset: int | None
    next_offsets: Mapping[str, int]
    first_offsets: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Batch, ...] = ()
