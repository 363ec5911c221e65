"""Where the HTTP API has parts of stored chunks read, beside the loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leveret.store.segments.segments import ChunkRef


@dataclass(frozen=True)
class ChunkSource:
    """The chunks on the disk of one broker.

    `read` returns so many bytes of a stream's chunk from a position in it on: fewer where the file
    ends or cannot be read, or is gone.
    """

    read: Callable[[int, ChunkRef, int, int], Awaitable[bytes]]
