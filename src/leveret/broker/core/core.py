"""What all of the broker shares: its journal, scheduler, memory, accounts and effects.

The core does no I/O.  What it needs of the shell it notes as *effects* (`scheduler/effects.py`):
connections that have output, chunks to read, and whether there is more to do.  The shell looks at
them once per batch of input, never once per message.

Invariant: nothing here calls into the shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.core.accounts import Accounts
from leveret.broker.core.counts import Counts, MessageSizes
from leveret.broker.core.events import MessageEvents
from leveret.broker.core.quotas import Quotas
from leveret.broker.core.stream_cache import StreamCache
from leveret.broker.scheduler.effects import (
    ChunkReader,
    ChunkWanted,
    DamagedChunk,
    SyncWaiter,
)
from leveret.broker.scheduler.scheduler import Scheduler
from leveret.broker.values.letters import LettersDropped
from leveret.limits import PUBLISHER_EXPIRY_MS
from leveret.store.damage import DamageCounts
from leveret.store.io_counts import IoCounts
from leveret.store.segments.segments import SegmentNumbers
from leveret.store.segments.spill import Spill, SpillBatch

if TYPE_CHECKING:
    from leveret.broker.scheduler.link import Link
    from leveret.store.journal.journal import Journal

#: No sequence has these bits all zero: they begin at 1.
NO_EVENTS: Final = 0x7FFF_FFFF_FFFF_FFFF


@final
class Core:
    """What all of the broker shares."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        #: Where queues put what their memory has no room for, and what reads it at once.
        self.spill = Spill(SegmentNumbers(1))
        self.reader = ChunkReader()
        self.scheduler: Final = Scheduler(journal, self.spill)
        self.syncs: Final = self.scheduler.syncs
        self.timers: Final = self.scheduler.timers
        self.memory: Final = self.scheduler.memory
        #: What the shell must do after the batch: chunks to read, and damaged ones to report and to
        #: keep a copy of.
        self.wanted: list[ChunkWanted] = []
        self.damaged: list[DamagedChunk] = []
        self._spill_waiters: list[SyncWaiter] = []
        #: What takes memory and is no message.
        self.accounts: Final = Accounts()
        #: What each user has of that which a quota may limit, and the limits of users.
        self.quotas: Final = Quotas(self)
        #: Messages of streams that are cached in memory although chunks have them.
        self.stream_cache: Final = StreamCache(self.memory)
        #: Wall time in ms, set by the shell once per batch; it never goes back or jumps.
        self.now_ms: i64 = 0
        # Since the start: what the metrics tell, the sizes of published messages, the journal's
        # writes, damaged records and chunks, and messages that could not be dead-lettered.
        self.counts: Final = Counts()
        self.sizes: Final = MessageSizes()
        self.io: Final = IoCounts()
        self.damage: Final = DamageCounts()
        self.letters_dropped: Final = LettersDropped()
        #: Records the life of a sample of messages: those whose sequence has none of these bits.
        self.events: MessageEvents | None = None
        self.event_mask: i64 = NO_EVENTS
        #: True while the disk is nearly full: what can wait is not written.
        self.disk_short = False
        #: The number of the newest consumer.
        self.consumer_number: i64 = 0
        #: The shortest `x-consumer-timeout` that any queue ever had, in ms; 0 for none.
        self.consumer_timeout_ms_min: i64 = 0
        #: How long a publisher may be idle before its numbers are forgotten.
        self.publisher_expiry_ms: i64 = PUBLISHER_EXPIRY_MS

    def attach(self, journal: Journal, spill: Spill, reader: ChunkReader) -> None:
        """Go on with the journal and the files of a data directory that was recovered."""
        self.journal = journal
        self.spill = spill
        self.reader = reader
        self.scheduler.attach(journal, spill)

    def follow(self, events: MessageEvents | None) -> None:
        """Record events with `events` from now on, or none."""
        self.events = events
        self.event_mask = NO_EVENTS if events is None else events.mask

    def limit_acks(self, timeout_ms: i64) -> None:
        """Note that there is such a limit for how long a delivery may stay unacked."""
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
        """Return whether the shell has chunks to read, to write or to remove, or damage to tell."""
        return (
            len(self.wanted) > 0
            or len(self.damaged) > 0
            or len(self.spill.unused) > 0
            or self.spill.waits
        )

    def take_woken(self, limit: i64) -> list[Link]:
        """Return the connections that the shell must look at, up to `limit`, and take them out."""
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
        """Take note that chunks are written, and call all that wait for it."""
        self.spill.written(batch)
        waiters = self._spill_waiters
        self._spill_waiters = []
        for waiter in waiters:
            waiter.waits_for_spill = False
            waiter.spilled()
