"""Reads parts of stored chunks for the HTTP API, off the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leveret.store.segments.segments import ChunkRef


@dataclass(frozen=True)
class ChunkSource:
    """The chunks on one broker's disk.

    `read` returns a number of bytes of a stream's chunk from a position: fewer if the file ends,
    cannot be read or was deleted.
    """

    read: Callable[[int, ChunkRef, int, int], Awaitable[bytes]]
