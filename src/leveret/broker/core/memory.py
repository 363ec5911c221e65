"""What messages take of the memory, counted in one place by all parts of the core.

It knows how much is held, not by whom: who takes a message into memory books it here, and books it
out when the message leaves.

Invariants: a message that several queues hold counts once for each of them; only the methods here
change the numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import i64

from leveret.broker.core.retention import RetentionShare
from leveret.broker.core.unacked_share import UnackedShare
from leveret.broker.scheduler.task import Spending
from leveret.limits import LARGE_MESSAGE_BYTES


class HeldMemory(Spending):
    """The account of the memory that messages take; sizes are bytes of bodies and properties."""

    def __init__(self) -> None:
        super().__init__()
        #: Bytes and number of the messages held in memory, each counted once per queue.
        self.held_bytes: i64 = 0
        self.held_messages: i64 = 0
        #: Bytes of contents that are not complete and of transactions that are not committed.
        self.assembling_bytes: i64 = 0
        #: Bytes of the delayed messages in memory, which are held too.
        self.delayed_bytes: i64 = 0
        #: Bytes that streams hold in memory because no chunk has them yet.
        self.unchunked_bytes: i64 = 0
        #: What is kept of messages that everybody has had; its bytes are held too.
        self.retention: Final = RetentionShare()
        #: What waits in memory for its retry; its bytes are held too.
        self.retries: Final = RetentionShare()
        #: What connections hold unacked, which is held too where it is not of a stream.
        self.unacked: Final = UnackedShare()

    def hold(self, size: i64) -> None:
        """Book a message of `size` bytes that a queue takes into memory."""
        self.held_bytes += size
        self.held_messages += 1

    def release(self, size: i64) -> None:
        """Book out a message of `size` bytes that a queue holds no longer."""
        self.held_bytes -= size
        self.held_messages -= 1
        if size >= LARGE_MESSAGE_BYTES:
            self.count_large(size)

    def release_deleted(self, size: i64) -> None:
        """Count that a message of a deleted queue, which is booked out, leaves the memory."""
        if size >= LARGE_MESSAGE_BYTES:
            self.count_large(size)

    @abstractmethod
    def count_large(self, size: i64) -> None:
        """Count what it takes to let go of a large message."""

    def hold_all(self, count: i64, size: i64) -> None:
        """Book `count` messages of `size` bytes together."""
        self.held_bytes += size
        self.held_messages += count

    def release_all(self, count: i64, size: i64) -> None:
        """Book out `count` messages of `size` bytes together."""
        self.held_bytes -= size
        self.held_messages -= count

    def delay(self, size: i64) -> None:
        """Book a delayed message that is in memory."""
        self.hold(size)
        self.delayed_bytes += size

    def end_delay(self, count: i64, size: i64) -> None:
        """Book out so many of them."""
        self.release_all(count, size)
        self.delayed_bytes -= size

    def begin_chunk(self, size: i64) -> None:
        """Book bytes of a stream that no chunk has yet; `hold` books the message itself."""
        self.unchunked_bytes += size

    def end_chunk(self, size: i64) -> None:
        """Book out such bytes: a chunk has them now, or the stream has dropped them."""
        self.unchunked_bytes -= size

    def assemble(self, size: i64) -> None:
        """Book bytes of a content or a transaction that is not complete."""
        self.assembling_bytes += size

    def end_assembly(self, size: i64) -> None:
        """Book out such bytes: the content or the transaction has ended."""
        self.assembling_bytes -= size
