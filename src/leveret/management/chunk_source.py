"""Where the HTTP API has parts of stored chunks read, beside the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leveret.store.segments.segments import ChunkRef


@dataclass(frozen=True)
class ChunkSource:
    """The chunks on the disk of one broker.

    `read` returns a number of bytes of a stream's chunk from a position in it on: fewer if the file
    ends, cannot be read or is gone.
    """

    read: Callable[[int, ChunkRef, int, int], Awaitable[bytes]]
