"""Writes and syncs the groups of the journal, one at a time.

A sync in the sync thread wakes two threads, which takes as long as a quick sync itself.  So the
event loop does the sync if one client alone waits for one quick sync after the other.  A group
that nobody waits for, such as one of acks, is written with the next group, or a little later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.broker.core import Core
from leveret.broker.scheduler.effects import SyncWaiter
from leveret.store.disk import DiskFull, StorageFailure
from leveret.store.journal.journal import JournalGroup

if TYPE_CHECKING:
    from leveret.server.runner import DiskThread

#: A sync that takes longer is not quick.
_QUICK_NS: Final = 1_000_000

#: The number of quick syncs for the same waiters after which the event loop does the next one.  It
#: doubles, up to the maximum, each time that such a sync was not quick.
_QUICK_SYNCS: Final = 16
_QUICK_SYNCS_MAX: Final = 65_536

#: A publish makes its channel wait for the sync, and perhaps a stream.
_WAITERS_MAX: Final = 2

#: The delay of a sync that nobody waits for, and the bytes from which it is not delayed.
_LATER_SECONDS: Final = 0.002
_POSTPONED_BYTES: Final = 65_536


class JournalSync:
    """Writes one group at a time, in the sync thread or in the event loop.

    `write` writes and syncs a group.  `submit` runs a call in the thread, repeats it while the disk
    is full, and runs another call in the loop afterwards.  `synced` is called with the number of
    each synced group.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: Core,
        thread: DiskThread,
        write: Callable[[JournalGroup], None],
        submit: Callable[[Callable[[], None], Callable[[], None]], None],
        synced: Callable[[int], None],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = loop
        self._core = core
        self._journal = core.journal
        self._syncs = core.syncs
        self._thread = thread
        self._write_group = write
        self._submit = submit
        self._synced = synced
        self._clock_ns = clock_ns
        #: True while a group is being written.
        self.in_progress = False
        self._later: asyncio.TimerHandle | None = None
        self._waiters: list[SyncWaiter] = []
        #: The number of quick syncs in a row for the same waiters, and the number needed.
        self._quick = 0
        self._needed = _QUICK_SYNCS

    @property
    def is_due(self) -> bool:
        """Return whether there are records, and no group is being written."""
        return not self.in_progress and self._journal.has_records()

    @property
    def is_busy(self) -> bool:
        """Return whether a group is being written, or will be soon."""
        return self.in_progress or self._later is not None

    def begin(self) -> None:
        """Begin the sync of the records so far, or postpone it if nobody waits for it."""
        if self._syncs.waiters(1) or self._journal.unsynced_bytes > _POSTPONED_BYTES:
            self.begin_now()
        elif self._later is None:
            self._later = self._loop.call_later(_LATER_SECONDS, self.begin_now)

    def begin_now(self) -> None:
        """Begin the sync of the records so far, unless a group is being written."""
        self.stop_waiting()
        if not self.is_due:
            return
        in_loop = self._is_in_loop() and self._thread.is_idle
        journal = self._journal
        journal.time_ms = max(journal.time_ms, self._core.now_ms)
        group = journal.seal()
        if group is None:
            return
        self.in_progress = True
        done = partial(self._ended, int(group.number))
        if in_loop:
            try:
                self._write(group, in_loop=True)
            except DiskFull:
                # The thread writes it again.
                pass
            except StorageFailure as failure:
                self._thread.failed(failure)
                return
            else:
                self._loop.call_soon(done)
                return
        self._submit(partial(self._write, group, in_loop=False), done)

    def stop_waiting(self) -> None:
        """Cancel a postponed sync."""
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _is_in_loop(self) -> bool:
        """Return whether the event loop does the next sync itself."""
        waiters = self._syncs.waiters(_WAITERS_MAX + 1)
        if len(waiters) > _WAITERS_MAX or waiters != self._waiters:
            self._waiters = waiters
            self._quick = 0
        return bool(waiters) and self._quick >= self._needed

    def _write(self, group: JournalGroup, *, in_loop: bool) -> None:
        """Write and sync a group.  Raises: StorageFailure."""
        began = self._clock_ns()
        self._write_group(group)
        if self._clock_ns() - began <= _QUICK_NS:
            self._quick += 1
            return
        self._quick = 0
        if in_loop:
            self._needed = min(2 * self._needed, _QUICK_SYNCS_MAX)

    def _ended(self, number: int) -> None:
        self.in_progress = False
        self._synced(number)
