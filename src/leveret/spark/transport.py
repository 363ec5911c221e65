"""The interface of a transport: where a stream begins and ends, and its messages as Arrow batches.

A transport reports what arrived; `ranges.py` checks that all of it did, asks again after an
interruption, and decides about data loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pyarrow as pa

from leveret.spark.errors import SourceError


class Redeclared(SourceError):
    """The stream was deleted and declared again, and is not the one to be read."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(f"it was deleted and declared again: its id was {wanted} and is {found}")


class Interrupted(SourceError):
    """The broker cannot be reached, or sends nothing though it has messages: ask again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages with consecutive offsets from `start` up to, not including, `end`: a row each."""

    start: int
    end: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Bounds:
    """A stream's offsets, from `earliest` up to, not including, `latest`.

    For an empty stream both are 0, or its next offset if the broker gives that.  `stream_id`
    identifies the stream of its name, if the broker gives it.
    """

    earliest: int
    latest: int
    stream_id: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the stream holds no message."""
        return self.earliest == self.latest


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a stream: the offset after its last message, and the stream's id.

    The offset of an empty stream is 0, or its next offset if the broker gives that.  `mean_bytes`
    is the mean size of its messages, if the broker gives it.
    """

    latest: int
    stream_id: str | None = None
    mean_bytes: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class QueryReport:
    """What a process of a streaming query tells the broker of the query (Leveret, over HTTP).

    `run` is the same in all processes of a run.  The driver knows the `position`, up to which all
    batches are committed; only tasks know the query's id and name.
    """

    run: str
    position: int | None = None
    query_id: str | None = None
    query_name: str | None = None


class Transport(ABC):
    """The way to one stream.  It may be used again after `Interrupted`, and then connects again."""

    @abstractmethod
    def earliest(self) -> int:
        """Return the offset of the first message, or `latest()` if there is none.

        Raises: Interrupted; NotFound (404) if there is no such stream.
        """

    @abstractmethod
    def tail(self) -> Tail:
        """Return the stream's end and its id, both of the same stream.

        Raises: Interrupted; NotFound (404) if there is no such stream.
        """

    def report(self, report: QueryReport) -> None:  # noqa: B027  most transports cannot
        """Tell the broker of the query with each of the next requests, if it listens to that."""

    def latest(self) -> int:
        """Return the offset after the last message, or 0 for an empty stream.

        Raises: Interrupted; NotFound (404) if there is no such stream.
        """
        return self.tail().latest

    @abstractmethod
    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range, in order, each offset at most once.

        A return before `end` means that the rest does not exist.  With `stream_id` no messages of
        another stream of the same name are yielded.

        Raises: Interrupted, after which a new call may continue; NotFound (404); Redeclared.
        """

    @abstractmethod
    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message received at or after a moment, or the end.

        A broker that records times only at intervals returns the offset of a message before it.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def end_at(self, timestamp_ms: int) -> int:
        """Return the lowest known offset from which on no message is from before a moment.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def mean_bytes(self, start: int, end: int) -> float:
        """Return the approximate size of the body of a message in a range; 0 for an empty range.

        Raises: Interrupted; NotFound (404).
        """

    def keeps_time(self) -> bool:
        """Return whether each message has the time that `offset_at` uses.

        Raises: Interrupted.
        """
        return True

    def is_loss(self, missing: int) -> bool:
        """Return whether an offset that did not arrive belonged to a message, and was not skipped.

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
