"""The interface of a transport, which returns a stream's ends, and its messages as Arrow batches.

A transport yields the messages that arrive.  `ranges.py` checks that none is missing, retries after
an interruption, and decides what counts as data loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Self

import pyarrow as pa

from leveret.spark.errors import SourceError


class Redeclared(SourceError):
    """The stream was deleted and declared again, so it is not the stream to be read."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(f"it was deleted and declared again: its id was {wanted} and is {found}")


class Interrupted(SourceError):
    """The broker cannot be reached, or sends nothing although it has messages.  Retry."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A batch of messages with consecutive offsets from `start` up to, but not including, `end`."""

    start: int
    end: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Bounds:
    """A stream's offsets, from `earliest` up to, but not including, `latest`.

    For an empty stream, both are its next offset, or 0 if the broker does not report one.
    `stream_id` identifies the stream among streams of the same name, if the broker reports it.
    """

    earliest: int
    latest: int
    stream_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the stream has no messages."""
        return self.earliest == self.latest


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a stream: the offset after its last message, and the stream's id.

    The end of an empty stream is its next offset, or 0 if the broker does not report one.
    `mean_bytes` is the mean size of its messages, if the broker reports it.
    """

    latest: int
    stream_id: str | None = None
    mean_bytes: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class QueryReport:
    """The progress that a process of a streaming query reports to Leveret.

    `run` is the same in all processes of a run.  The driver sets `position`, up to which all
    batches are committed.  Only tasks can set the query's id and name.
    """

    run: str
    position: int | None = None
    query_id: str | None = None
    query_name: str | None = None

    def fields(self) -> dict[str, int | str]:
        """Return the known fields by their names in a report."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Transport(ABC):
    """Access to one stream.  After `Interrupted`, the next call connects again."""

    @abstractmethod
    def earliest(self) -> int:
        """Return the offset of the first message, or `latest()` for an empty stream.

        Raises: Interrupted; NotFound (404) if the stream does not exist.
        """

    @abstractmethod
    def tail(self) -> Tail:
        """Return the stream's end and id, both of the same stream.

        Raises: Interrupted; NotFound (404) if the stream does not exist.
        """

    def report(self, report: QueryReport) -> None:  # noqa: B027  a directory has no broker
        """Report the query to the broker with each following request, if the broker supports it."""

    def latest(self) -> int:
        """Return the offset after the last message, as in `Tail`.

        Raises: Interrupted; NotFound (404) if the stream does not exist.
        """
        return self.tail().latest

    @abstractmethod
    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range, in order, each offset at most once.

        If it returns before `end`, the remaining messages do not exist.  With `stream_id`, it never
        yields messages of another stream of the same name.

        Raises: Interrupted, after which a new call may continue; NotFound (404); Redeclared.
        """

    @abstractmethod
    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message received at or after a time, or the end.

        A broker that records times only at intervals may return the offset of an earlier message.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def end_at(self, timestamp_ms: int) -> int:
        """Return the lowest known offset after every message that was received before a time.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def mean_bytes(self, start: int, end: int) -> float:
        """Return the approximate mean body size in a range, or 0 for an empty range.

        Raises: Interrupted; NotFound (404).
        """

    def keeps_time(self) -> bool:
        """Return whether each message has its own time for `offset_at`.

        Raises: Interrupted.
        """
        return True

    def is_loss(self, missing: int) -> bool:
        """Return whether a missing offset was a message's, and was not skipped by the broker.

        Raises: Interrupted; NotFound (404).
        """
        return True

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def bounds(self) -> Bounds:
        """Return both ends and the id, all of the same stream.  Raises: Interrupted; NotFound."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
