"""The state that the whole broker shares: journal, scheduler, memory, accounts and effects.

The core does no I/O.  It records its requests to the shell as *effects* (`scheduler/effects.py`):
connections that have output, chunks to read, and whether more work is left.  The shell handles them
once per batch of input, never once per message.

Invariant: nothing here calls into the shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.dead_letter_copies import LettersDropped
from leveret.broker.attributes.message_events import MessageEvents
from leveret.broker.counters import Counts, MessageSizes
from leveret.broker.quotas import Quotas
from leveret.broker.scheduler.accounts import Accounts
from leveret.broker.scheduler.effects import (
    ChunkReader,
    ChunkWanted,
    DamagedChunk,
    SyncWaiter,
)
from leveret.broker.scheduler.scheduler import Scheduler
from leveret.broker.scheduler.stream_cache import StreamCache
from leveret.limits import PUBLISHER_EXPIRY_MS
from leveret.store.damage import DamageCounts
from leveret.store.io_counts import IoCounts
from leveret.store.segments.segments import SegmentNumbers
from leveret.store.segments.spill import Spill, SpillBatch

if TYPE_CHECKING:
    from leveret.broker.scheduler.link import Link
    from leveret.store.journal.journal import Journal

#: A mask that no sequence matches, because sequences begin at 1.
NO_EVENTS: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class Core:
    """State shared by the whole broker."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        #: The files to which queues write messages that do not fit in memory, and the reader that
        #: reads them back at once.
        self.spill = Spill(SegmentNumbers(1))
        self.reader = ChunkReader()
        self.scheduler: Final = Scheduler(journal, self.spill)
        self.syncs: Final = self.scheduler.syncs
        self.timers: Final = self.scheduler.timers
        self.memory: Final = self.scheduler.memory
        #: Work for the shell after the batch: chunks to read, and damaged ones to report and to
        #: keep a copy of.
        self.wanted: list[ChunkWanted] = []
        self.damaged: list[DamagedChunk] = []
        self._spill_waiters: list[SyncWaiter] = []
        #: Memory that is not messages.
        self.accounts: Final = Accounts()
        #: The use of quotas by each user, and the users' limits.
        self.quotas: Final = Quotas(self.scheduler)
        #: Stream messages that are in chunks, and cached in memory.
        self.stream_cache: Final = StreamCache(self.memory)
        #: Wall time in ms, set by the shell once per batch; it never goes back or jumps.
        self.now_ms: i64 = 0
        # Since the start: counters for the metrics, the sizes of published messages, the journal's
        # writes, damaged records and chunks, and messages that could not be dead-lettered.
        self.counts: Final = Counts()
        self.sizes: Final = MessageSizes()
        self.io: Final = IoCounts()
        self.damage: Final = DamageCounts()
        self.letters_dropped: Final = LettersDropped()
        #: Records the events of a sample of messages: those with none of the mask's bits in their
        #: sequence.
        self.events: MessageEvents | None = None
        self.event_mask: i64 = NO_EVENTS
        #: True while the disk is nearly full: deferrable data are not written.
        self.disk_short = False
        #: The number of the newest consumer.
        self.consumer_number: i64 = 0
        #: The shortest `x-consumer-timeout` that any queue ever had, in ms; 0 for none.
        self.consumer_timeout_ms_min: i64 = 0
        #: How long a publisher may be idle before its deduplication state is dropped.
        self.publisher_expiry_ms: i64 = PUBLISHER_EXPIRY_MS

    def attach(self, journal: Journal, spill: Spill, reader: ChunkReader) -> None:
        """Continue with the journal and the files of a recovered data directory."""
        self.journal = journal
        self.spill = spill
        self.reader = reader
        self.scheduler.attach(journal, spill)

    def follow(self, events: MessageEvents | None) -> None:
        """Record events with `events` from now on; stop recording if it is None."""
        self.events = events
        self.event_mask = NO_EVENTS if events is None else events.mask

    def limit_acks(self, timeout_ms: i64) -> None:
        """Remember the shortest limit for how long a delivery may stay unacked."""
        if timeout_ms > 0 and (
            self.consumer_timeout_ms_min == 0 or timeout_ms < self.consumer_timeout_ms_min
        ):
            self.consumer_timeout_ms_min = timeout_ms

    def settle(self, new_round: bool = True) -> None:
        """End a batch of input, and with `new_round` begin a round (`Scheduler.settle`)."""
        self.scheduler.settle(self.now_ms, new_round)
        if self.events is not None:
            self.events.flush()

    def due(self) -> bool:
        """Return whether a deadline has passed."""
        return self.scheduler.due(self.now_ms)

    # -- calls of the shell ------------------------------------------------------------------------

    def needs_files(self) -> bool:
        """Return whether the shell has chunks to read, write or remove, or damage to report."""
        return (
            len(self.wanted) > 0
            or len(self.damaged) > 0
            or len(self.spill.unused) > 0
            or self.spill.waits
        )

    def take_woken(self, limit: i64) -> list[Link]:
        """Remove and return up to `limit` connections that the shell must handle."""
        woken = self.scheduler.take_woken(limit)
        if self.consumer_timeout_ms_min > 0:
            for link in woken:
                link.delivered()
        return woken

    def take_wanted(self) -> list[ChunkWanted]:
        """Return the chunks to read, and clear the list."""
        wanted = self.wanted
        self.wanted = []
        return wanted

    def wait_spilled(self, waiter: SyncWaiter) -> None:
        """Call `waiter` when chunks are written."""
        if not waiter.waits_for_spill:
            waiter.waits_for_spill = True
            self._spill_waiters.append(waiter)

    def spilled(self, batch: SpillBatch) -> None:
        """Mark chunks as written, and call all waiters."""
        self.spill.written(batch)
        waiters = self._spill_waiters
        self._spill_waiters = []
        for waiter in waiters:
            waiter.waits_for_spill = False
            waiter.spilled()
