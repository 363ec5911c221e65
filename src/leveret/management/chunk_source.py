"""Reads parts of stored chunks for the HTTP API, outside the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leveret.store.segments.segments import ChunkRef


@dataclass(frozen=True)
class ChunkSource:
    """Access to the stored chunks of one broker.

    `read` takes a stream's number, a chunk, a position and a number of bytes.  It returns fewer
    bytes if the file ends, cannot be read or was deleted.
    """

    read: Callable[[int, ChunkRef, int, int], Awaitable[bytes]]
