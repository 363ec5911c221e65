"""The result of a run of the archive job, with its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from leveret.pipelines.lakes import TableSize


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch: its start, its duration, and the number of its messages."""

    number: int
    began: datetime
    seconds: float
    records: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The archive after a run: all of its files, and those that the run added.

    `oldest_unarchived` is the time at which the broker received the oldest message that the archive
    does not have yet, or None if there is none or its time is not known.
    """

    size: TableSize
    added: TableSize
    oldest_unarchived: datetime | None = None


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of a run, which archived `records` messages with `body_bytes` bytes in bodies.

    `first_offsets` are the offsets of the streams at the start of the run, and `next_offsets` those
    after its end.  `next_offset` is the next offset of a single stream, or None if there were no
    streams, or several.  `steps` has the last batches, at most 2,000.  `lag` is the number of
    messages of each stream that were not archived, of those that existed when the last batch was
    planned.  `measured` is None unless a page was written.
    """

    path: str
    stream: str
    records: int
    batches: int
    next_offset: int | None
    next_offsets: Mapping[str, int]
    first_offsets: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Batch, ...] = ()
    body_bytes: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    measured: Measured | None = None
