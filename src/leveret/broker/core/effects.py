"""What the core asks of the shell, and who goes on when that is done.

Each is a native base class that the rooms above extend; `Turn` gathers them, and the shell runs
them once per batch.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.store.segments.segments import ChunkRef


@mypyc_attr(allow_interpreted_subclasses=True)
class SyncWaiter:
    """Something that goes on when a group of the journal is synced."""

    def __init__(self) -> None:
        #: The group it waits for; 0 when it waits for none.
        self.waits_for: i64 = 0

    def synced(self, group: i64) -> None:
        """Go on: every group up to `group` is synced."""
        raise RuntimeError("a sync waiter says how it goes on")


@mypyc_attr(allow_interpreted_subclasses=True)
class SpillWaiter(SyncWaiter):
    """Something that goes on when chunks were written."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for_spill = False

    def spilled(self) -> None:
        """Go on."""
        raise RuntimeError("who waits for chunks says how it goes on")


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkWanted:
    """A request to the shell: read a stored chunk and call `arrived` with its bytes."""

    def __init__(self, ref: ChunkRef) -> None:
        self.ref = ref

    def arrived(self, data: bytes) -> None:
        """Go on with the chunk's bytes, fewer than asked for where the file ends early."""
        raise RuntimeError("a wanted chunk says what to do with its bytes")


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkReader:
    """Reads a stored chunk at once, for the few who cannot wait for it."""

    def read(self, ref: ChunkRef) -> bytes:
        """Return the chunk's bytes, fewer than asked for where they cannot be read."""
        return b""


@mypyc_attr(allow_interpreted_subclasses=True)
class Cancellable:
    """A consumer as far as it can be ended by the broker."""

    def cancel(self) -> None:
        """Tell the consumer's client that it ended."""
        raise RuntimeError("a consumer tells its client")


@final
class Cancels(SyncWaiter):
    """Consumers whose queue was deleted, until the deletion is durable.

    Who asked for it tells them right after its reply; else they are told when the sync is done.
    """

    def __init__(self, cancelled: list[Cancellable]) -> None:
        super().__init__()
        self.cancelled = cancelled

    def synced(self, group: i64) -> None:
        """Tell them, unless they were told."""
        self.notify()

    def notify(self) -> None:
        """Tell each of them, once."""
        cancelled = self.cancelled
        self.cancelled = []
        for consumer in cancelled:
            consumer.cancel()


@mypyc_attr(allow_interpreted_subclasses=True)
class DeadMessage:
    """A message that left its queue and may go on to a dead-letter exchange."""

    def dead_letter(self) -> i64:
        """Hand the message over, or let it go; return how many steps of work that was."""
        raise RuntimeError("what dies says where it goes")


@final
class Damaged:
    """A stored chunk that did not check when it was read: its bytes, fewer where some are missing.

    `what` says what is lost by it, `records` how many messages that are.
    """

    def __init__(self, ref: ChunkRef, data: bytes, what: str, records: i64) -> None:
        self.ref: Final = ref
        self.data: Final = data
        self.what: Final = what
        self.records: Final[i64] = records
