"""What the core requests from the shell, and the base classes of those who wait for it.

Each is a native base class that the rooms above extend; `Turn` gathers them, and the shell runs
them once per batch.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncWaiter:
    """Something that waits until a group of the journal is synced."""

    def __init__(self) -> None:
        #: The group that it waits for, or 0.
        self.waits_for: i64 = 0

    def synced(self, group: i64) -> None:
        """Continue: every group up to `group` is synced."""
        raise RuntimeError("a sync waiter says how it goes on")


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillWaiter(SyncWaiter):
    """Something that waits until chunks are written."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for_spill = False

    def spilled(self) -> None:
        """Continue: chunks were written."""
        raise RuntimeError("who waits for chunks says how it goes on")


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkWanted:
    """A request to the shell: read a stored chunk and call `arrived` with its bytes."""

    def __init__(self, ref: ChunkRef) -> None:
        self.ref = ref

    def arrived(self, data: bytes) -> None:
        """Take the chunk's bytes, fewer than requested where the file ends early."""
        raise RuntimeError("a wanted chunk says what to do with its bytes")


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkReader:
    """Reads a stored chunk at once, for the few callers that cannot wait for it."""

    def read(self, ref: ChunkRef) -> bytes:
        """Return the chunk's bytes, fewer than requested where they cannot be read."""
        return b""


@mypyc_attr(allow_interpreted_subclasses=True)
class Cancellable:
    """A consumer that the broker can cancel."""

    def cancel(self) -> None:
        """Tell the client that its consumer was cancelled."""
        raise RuntimeError("a consumer tells its client")


@final
class Cancels(SyncWaiter):
    """Consumers whose queue was deleted, until the deletion is durable.

    The connection that deleted the queue notifies them right after its reply; otherwise they are
    notified when the sync is done.
    """

    def __init__(self, cancelled: list[Cancellable]) -> None:
        super().__init__()
        self.cancelled = cancelled

    def synced(self, group: i64) -> None:
        """Notify the consumers, unless that was done."""
        self.notify()

    def notify(self) -> None:
        """Notify each consumer, once."""
        cancelled = self.cancelled
        self.cancelled = []
        for consumer in cancelled:
            consumer.cancel()


@mypyc_attr(allow_interpreted_subclasses=True)
class DeadMessage:
    """A message that left its queue and may go on to a dead-letter exchange."""

    def dead_letter(self) -> i64:
        """Dead-letter the message or drop it; return how many steps of work that was."""
        raise RuntimeError("what dies says where it goes")


@final
class DamagedChunk:
    """A stored chunk that failed its check when it was read, with the bytes that were there.

    `what` describes the loss, `records` is the number of messages lost.
    """

    def __init__(self, ref: ChunkRef, data: bytes, what: str, records: i64) -> None:
        self.ref: Final = ref
        self.data: Final = data
        self.what: Final = what
        self.records: Final[i64] = records
