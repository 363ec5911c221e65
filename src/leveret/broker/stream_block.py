"""The block of a stream: consecutive messages, in memory, in a chunk of a file, or both.

It is not the stream, which says when a block is written, read back and let go of.

Invariants: a block without messages has a reference; its numbers hold for both places.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.message import Message
from leveret.store.segments import ChunkRef


@final
class Block:
    """Consecutive messages of a stream: in memory, in a file, or both."""

    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.count: i64 = 0
        self.size: i64 = 0
        self.timestamp_min: i64 = 0
        self.timestamp_max: i64 = 0
        #: None while the messages lie only in the file; a message that was found damaged is None.
        self.messages: list[Message | None] | None = []
        #: Where the chunk lies; None while it is in no file.
        self.ref: ChunkRef | None = None
        #: True once the bytes are where the reference says.
        self.written = True
        self.wanted = False

    def add(self, message: Message) -> None:
        """Append a message to a block in memory."""
        messages = self.messages
        assert messages is not None
        if self.count == 0:
            self.timestamp_min = message.timestamp_ms
        self.timestamp_max = max(self.timestamp_max, message.timestamp_ms)
        messages.append(message)
        self.count += 1
        self.size += message.size

    def split(self, offset: i64) -> Block:
        """Keep what lies before `offset`, which is inside a block in memory; return the rest."""
        messages = self.messages
        assert messages is not None
        place: i64 = offset - self.first
        rest = Block(offset)
        for message in messages[place:]:
            if message is not None:
                rest.add(message)
        rest.messages = messages[place:]
        rest.count = self.count - place
        self.messages = messages[:place]
        self.count = place
        self.size -= rest.size
        self.timestamp_max = self.timestamp_min
        for message in self.messages:
            if message is not None:
                self.timestamp_max = max(self.timestamp_max, message.timestamp_ms)
        return rest
