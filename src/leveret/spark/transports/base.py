"""What a transport is: where a stream begins and ends, and its messages as Arrow batches.

Not here: what it means when messages are missing.  A transport tells what came; `ranges.py` checks
that all of it did, asks again after an interruption, and decides about data loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa


class Redeclared(Exception):
    """The stream is not the one that was to be read: it was deleted and declared again."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(f"it was deleted and declared again: its id was {wanted} and is {found}")


class Interrupted(Exception):
    """The broker cannot be reached, or sends nothing though it has messages: ask again."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages of consecutive offsets, `start` up to, not including, `end`: a row each."""

    start: int
    end: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream holds: offsets from `earliest` up to, not including, `latest`.

    Of an empty stream both are 0, or where it will go on if the broker tells that.  `stream_id`
    says which stream of its name it is, if the broker tells that.
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
    """The end of a stream: the offset after its last message, and which stream of its name it is.

    The offset of an empty stream is 0, or where it will go on if the broker tells that.
    """

    latest: int
    stream_id: str | None = None


class Transport(ABC):
    """A way to one stream.  It may be used again after `Interrupted`; it then connects anew."""

    @abstractmethod
    def earliest(self) -> int:
        """Return the offset of the first message that is there; `latest()` when none is.

        Raises: Interrupted; NotFound (404) when there is no such stream.
        """

    @abstractmethod
    def tail(self) -> Tail:
        """Return the stream's end and its id, both of the same stream.

        Raises: Interrupted; NotFound (404) when there is no such stream.
        """

    def latest(self) -> int:
        """Return the offset after the last message that is there; 0 of an empty stream.

        Raises: Interrupted; NotFound (404) when there is no such stream.
        """
        return self.tail().latest

    @abstractmethod
    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield what the stream holds of a range, in order, each offset at most once.

        A return before `end` says that the rest is not there.  With `stream_id` nothing of another
        stream of the same name is yielded.

        Raises: Interrupted, after which a new call may go on; NotFound (404); Redeclared.
        """

    @abstractmethod
    def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first message taken at or after a moment; the end when none.

        A broker that notes times only now and then returns one of a message before it.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def end_at(self, timestamp_ms: int) -> int:
        """Return an offset from which on no message was taken before a moment; as small as known.

        Raises: Interrupted; NotFound (404).
        """

    @abstractmethod
    def mean_bytes(self, start: int, end: int) -> float:
        """Return about how many bytes the body of a message in a range has; 0 of an empty one.

        Raises: Interrupted; NotFound (404).
        """

    def keeps_time(self) -> bool:
        """Tell whether each message has the moment that `offset_at` goes by.

        Raises: Interrupted.
        """
        return True

    def is_loss(self, missing: int) -> bool:
        """Tell whether an offset that did not come was a message's, and not one left out.

        Raises: Interrupted; NotFound (404).
        """
        return True

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""

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
