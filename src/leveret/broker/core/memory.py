"""What messages take of the memory, counted in one place by all parts of the core.

Invariant: a message that several queues hold counts once for each of them.
"""

from __future__ import annotations

from mypy_extensions import i64


class HeldMemory:
    """The account of the memory that messages take."""

    def __init__(self) -> None:
        #: Bytes and number of the messages held in memory, each counted once per queue.
        self.held_bytes: i64 = 0
        self.held_messages: i64 = 0
        #: Bytes of contents that are not complete and of transactions that are not committed.
        self.assembling_bytes: i64 = 0
        #: Bytes that streams hold in memory because no chunk has them yet.
        self.unchunked_bytes: i64 = 0
