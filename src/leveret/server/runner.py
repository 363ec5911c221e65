"""Runs the effects that the core has recorded, after each batch of input.

The core does no I/O.  The runner flushes connections, passes sealed groups to the sync thread,
reads chunks, and calls the core again if unfinished work remains.  One sync runs at a time; records
written during it form the next group.

This module is deliberately not compiled, because it uses asyncio.

The callbacks of timers, syncs, reads and checkpoints do not catch unexpected exceptions (those that
the code does not raise on purpose).  The event loop passes these to its exception handler, which
stops the broker (`app`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

from leveret.broker.broker import Broker
from leveret.broker.scheduler.costs import SLICE, TICK
from leveret.broker.scheduler.effects import ChunkWanted, SyncWaiter
from leveret.broker.scheduler.link import Link
from leveret.clock import NO_DEADLINE, LivedClock
from leveret.server.chunk_files import ChunkFiles
from leveret.server.client_socket import ClientSocket
from leveret.server.journal_sync import JournalSync
from leveret.store.checkpoint.checkpoint import Checkpoint, CheckpointWork
from leveret.store.disk import DiskFull, StorageFailure
from leveret.store.journal.journal import JournalGroup
from leveret.store.segments.segments import ChunkRef
from leveret.store.segments.spill import SpillBatch

#: The maximum number of connections flushed before input is read (about 8 µs each).
FLUSHES_PER_TURN: Final = 512


#: The longest timer, because event loops do not accept years.  Later deadlines take several timers.
TIMER_MS_MAX = 3_600_000

#: The delay before a write that failed because the disk was full is repeated.
NO_ROOM_SECONDS = 0.25

T = TypeVar("T")

#: A task of a disk thread; it returns a function that the event loop calls afterwards.
Task = Callable[[], Callable[[], None]]


class DiskThread:
    """One thread for blocking disk calls, which must release the GIL."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[StorageFailure], None],
        broken: Callable[[BaseException], None],
        name: str = "sync",
    ) -> None:
        self._loop = loop
        self.failed = failed
        self._broken = broken
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._submitted = 0
        self._ended = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, task: Task) -> None:
        """Run `task` in the thread."""
        self._submitted += 1
        self._tasks.put(task)

    @property
    def is_idle(self) -> bool:
        """Return whether all submitted tasks have ended."""
        return self._submitted == self._ended

    def stop(self) -> None:
        """Finish the submitted tasks and end the thread."""
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                done = task()
            except StorageFailure as failure:
                # Not retried, because the contents of the disk are unknown after a failed sync.
                self._loop.call_soon_threadsafe(self.failed, failure)
                return
            except BaseException as error:  # noqa: BLE001 (a broker without syncs must stop)
                self._loop.call_soon_threadsafe(self._broken, error)
                return
            self._ended += 1
            self._loop.call_soon_threadsafe(done)


class DiskThreads:
    """The disk threads of a broker: for journal syncs, chunk writes, chunk reads and bulk reads.

    Confirms do not wait for chunks, and consumers do not wait for slow syncs or bulk reads of
    streams.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[StorageFailure], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        """The loop calls `failed` if the disk fails, and `broken` for unexpected exceptions."""
        self.sync = DiskThread(loop, failed, broken, "sync")
        self.spill = DiskThread(loop, failed, broken, "spill")
        self.read = DiskThread(loop, failed, broken, "read")
        self.bulk = DiskThread(loop, failed, broken, "bulk")

    def start(self) -> None:
        """Start the threads."""
        for thread in (self.sync, self.spill, self.read, self.bulk):
            thread.start()

    def stop(self) -> None:
        """Finish the submitted tasks and end the threads."""
        for thread in (self.sync, self.spill, self.read, self.bulk):
            thread.stop()


class _GroupWaiter(SyncWaiter):
    """Resolves a future when its group is synced."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        super().__init__()
        self.future = future

    def synced(self, group: int) -> None:
        """Resolve the future."""
        if not self.future.done():
            self.future.set_result(None)


class Observer:
    """Receives notifications of a runner, in the event loop.  This base class ignores them."""

    def synced(self) -> None:
        """Handle the end of a sync, after the core was notified."""

    def spilled(self) -> None:
        """Handle the end of a write of queues' chunks."""

    def checkpoint_ended(self) -> None:
        """Handle the end of a checkpoint."""

    def found_damage(self) -> None:
        """Handle newly found damaged chunks (`core.damaged`)."""

    def no_room(self, full: DiskFull) -> None:
        """Handle a full disk; called each time a group or chunks could not be written."""


class Runner:
    """Runs the effects of one broker.

    It must have fewer than 30 attributes, because CPython 3.11 looks up methods more slowly on an
    object with more, and some of these methods are called for each batch of input.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        clock: LivedClock,
        threads: DiskThreads,
        write_group: Callable[[JournalGroup], None],
        chunks: ChunkFiles,
        broken: Callable[[BaseException], None],
    ) -> None:
        """`broken` stops the broker after an unexpected exception."""
        self._loop = loop
        self.broken = broken
        self._broker = broker
        self._core = broker.core
        self._timers = broker.core.timers
        self._journal = broker.core.journal
        self._clock = clock
        #: The total time of suspensions already reported to connections, and whether there was one
        #: since the last tick.
        self._paused_ms = 0
        self._woke = False
        #: The connections that the current tick has yet to check, the next one last.
        self._unticked: list[ClientSocket] = []
        self._threads = threads
        self._chunks = chunks
        self._spilling = False
        #: True while spilled chunks wait for disk space; callers do not wait for these.
        self._spill_waits = False
        self._shells: dict[Link, ClientSocket] = {}
        sync = threads.sync
        self._sync = JournalSync(
            loop, broker.core, sync, write_group, partial(self._do, sync), self._synced
        )
        self._resuming = False
        #: The deadline that the timer is set for.
        self._armed_ms = int(NO_DEADLINE)
        self._alarm: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._empty: list[asyncio.Future[None]] = []
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_work: Callable[[CheckpointWork], None] = _no_work
        self._checkpoint_busy = False
        self._observer = Observer()
        self.failed = False

    def observe(self, observer: Observer) -> None:
        """Set the observer to notify."""
        self._observer = observer

    def fail(self) -> None:
        """Stop running effects because the broker failed, and wake waiting callers."""
        self.failed = True
        self._disarm()
        self._sync.stop_waiting()
        _resolve(self._idle)

    # -- connections ------------------------------------------------------------------------------

    def now(self) -> int:
        """Set the core's time; return the monotonic time in ms."""
        self._core.now_ms = self._clock.wall_ms()
        return self._clock.monotonic_ms()

    def add(self, link: Link, shell: ClientSocket) -> None:
        """Register the socket of a connection."""
        self._shells[link] = shell

    def remove(self, link: Link) -> None:
        """Remove the socket of a connection."""
        self._shells.pop(link, None)
        if not self._shells:
            _resolve(self._empty)

    @property
    def shells(self) -> list[ClientSocket]:
        """The sockets of all connections."""
        return list(self._shells.values())

    # -- effects ----------------------------------------------------------------------------------

    def run(self, new_round: bool = False) -> None:
        """Run the effects that the core has recorded since the last call.

        With `new_round`, the core begins a round, in which unfinished work continues.
        """
        if self.failed:
            return
        self._broker.settle(new_round)
        core = self._core
        for link in core.take_woken(FLUSHES_PER_TURN):
            shell = self._shells.get(link)
            if shell is not None:
                shell.flush()
        if core.needs_files():
            self._use_files()
        if self._sync.is_due:
            self._sync.begin()
        self._arm()
        if not self._resuming and core.scheduler.must_go_on():
            self._resuming = True
            self._loop.call_soon(self._resume)

    def _use_files(self) -> None:
        """Read, write and remove chunks for the core, and report damaged ones."""
        core = self._core
        core.damaged += self._chunks.take_mended()
        if core.damaged:
            self._observer.found_damage()
        for wanted in core.take_wanted():
            self._read(wanted)
        if core.spill.waits and not self._spilling:
            self._spill()
        if core.spill.unused:
            self._remove_unused()

    def _arm(self) -> None:
        """Set the timer for the core's next deadline."""
        next_ms = int(self._timers.next_ms())
        if next_ms == self._armed_ms:
            return
        self._disarm()
        self._armed_ms = next_ms
        if next_ms != NO_DEADLINE:
            wait_ms = min(max(next_ms - self._clock.wall_ms(), 0), TIMER_MS_MAX)
            self._alarm = self._loop.call_later(wait_ms / 1000, self._due)

    def _disarm(self) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._armed_ms = NO_DEADLINE

    @property
    def next_deadline_ms(self) -> int:
        """The next deadline of the core in wall time, or `NO_DEADLINE`."""
        return int(self._core.timers.next_ms())

    @property
    def has_more_to_do(self) -> bool:
        """Return whether the core still has immediate work to do."""
        core = self._core
        pending = bool(core.scheduler.woken) or bool(self._unticked)
        return core.scheduler.resume or core.scheduler.has_more() or core.due() or pending

    def clock_moved(self) -> None:
        """Run due work and set the timer again after the clock was moved."""
        self._disarm()
        self.tick()

    def _due(self) -> None:
        """Run the core at a deadline, or set the next timer of a long wait."""
        self._alarm = None
        self._armed_ms = NO_DEADLINE
        self.now()
        self.run()

    def _resume(self) -> None:
        self._resuming = False
        self.now()
        self.run(new_round=True)

    def _do(self, thread: DiskThread, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` in `thread`, repeat it as long as the disk is full, then call `done`."""
        if not self.failed:
            thread.submit(partial(self._try, thread, work, done))

    def _try(
        self, thread: DiskThread, work: Callable[[], None], done: Callable[[], None]
    ) -> Callable[[], None]:
        try:
            work()
        except DiskFull as full:
            if thread is self._threads.spill:
                self._spill_waits = True
            return partial(self._found_no_room, full, partial(self._do, thread, work, done))
        return done

    def _found_no_room(self, full: DiskFull, again: Callable[[], None]) -> None:
        """Repeat a write after a delay; nothing depends on it, and no other write begins first."""
        if not self.failed:
            self._observer.no_room(full)
            self._loop.call_later(NO_ROOM_SECONDS, again)
            self.run()
            self._rest()

    def _synced(self, number: int) -> None:
        if self.failed:
            return
        self.now()
        self._core.syncs.synced(number)
        self.step_checkpoint()
        self._observer.synced()
        self.run()
        self._rest()

    @property
    def busy(self) -> bool:
        """Return whether a write to the disk is in progress, except one that waits for space."""
        return self._sync.is_busy or (self._spilling and not self._spill_waits)

    def _rest(self) -> None:
        if not self.busy:
            _resolve(self._idle)

    # -- chunks -----------------------------------------------------------------------------------

    def _spill(self) -> None:
        """Write the next chunks of queues that exceed their memory."""
        spill = self._core.spill
        batch = spill.take()
        self._spilling = True
        write = partial(self._chunks.write, batch)
        self._do(self._threads.spill, write, partial(self._spilled, batch))

    def _spilled(self, batch: SpillBatch) -> None:
        self._spilling = self._spill_waits = False
        if self.failed:
            return
        self._observer.spilled()
        self.now()
        self._core.spilled(batch)
        self.step_checkpoint()
        self.run()
        self._rest()

    def _remove_unused(self) -> None:
        """Remove the temporary files that are no longer used."""
        unused = self._core.spill.take_unused()

        def remove() -> Callable[[], None]:
            self._chunks.remove(unused)
            return _nothing

        if unused:
            self._threads.spill.submit(remove)

    def _read(self, wanted: ChunkWanted) -> None:
        def read() -> Callable[[], None]:
            data = self._chunks.read(int(wanted.owner), wanted.ref, int(wanted.levels))
            return lambda: self._arrived(wanted, data)

        self._threads.read.submit(read)

    def _arrived(self, wanted: ChunkWanted, data: bytes) -> None:
        self.now()
        wanted.arrived(data)
        self.run()

    def read_part(self, owner: int, ref: ChunkRef, at: int, size: int) -> asyncio.Future[bytes]:
        """Read a part of a chunk; return fewer bytes if the rest cannot be read."""
        return self.in_bulk_thread(partial(self._chunks.read_part, owner, ref, at, size))

    def in_bulk_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run `call`, which must not raise, in the thread for bulk reads; return its result.

        The call is skipped if its caller has been cancelled.
        """
        waiting: asyncio.Future[T] = self._loop.create_future()

        def task() -> Callable[[], None]:
            # The future is done if the caller was cancelled while this task was queued.
            return _nothing if waiting.done() else partial(_give, waiting, call())

        self._threads.bulk.submit(task)
        return waiting

    async def emptied(self) -> None:
        """Wait until all connections are closed."""
        if self._shells:
            waiting = self._loop.create_future()
            self._empty.append(waiting)
            await waiting

    async def synced(self) -> None:
        """Wait until all pending writes are on the disk, or the storage fails.

        This includes the records that waiters for these syncs add.
        """
        self.run()
        waiters = self._core.syncs
        while (self.busy or waiters.has_ready()) and not self.failed:
            if waiters.has_ready():
                self.run(new_round=True)
            else:
                waiting = self._loop.create_future()
                self._idle.append(waiting)
                await waiting

    async def durable(self) -> None:
        """Run the core's effects, and wait until all records so far are synced.

        If the broker fails, this never returns, so that no caller treats its change as durable.
        """
        journal = self._journal
        group = int(journal.group) if journal.has_records() else int(journal.group) - 1
        waiter = _GroupWaiter(self._loop.create_future())
        if group > journal.durable_group or self.failed:
            self._core.syncs.wait(waiter, group)
        else:
            waiter.synced(group)
        try:
            self.run()
        except Exception as bug:  # noqa: BLE001 (the effects are not those of a single request)
            self.broken(bug)
        await waiter.future

    def submit(self, task: Task) -> None:
        """Run `task` in the sync thread after the queued tasks."""
        self._threads.sync.submit(task)

    def in_sync_thread(self, call: Callable[[], None]) -> asyncio.Future[None]:
        """Run `call` in the sync thread after the queued tasks; return a future for its end."""
        made = self._loop.create_future()

        def task() -> Callable[[], None]:
            call()
            return lambda: _resolve([made])

        self.submit(task)
        return made

    # -- checkpoints ------------------------------------------------------------------------------

    def begin_checkpoint(
        self, checkpoint: Checkpoint, work: Callable[[CheckpointWork], None]
    ) -> None:
        """Run a checkpoint in the background; `work` runs its steps in the sync thread."""
        self._checkpoint = checkpoint
        self._checkpoint_work = work
        self.step_checkpoint()

    @property
    def in_checkpoint(self) -> bool:
        """Return whether a checkpoint is in progress."""
        return self._checkpoint is not None

    def step_checkpoint(self) -> None:
        """Continue the checkpoint, unless it waits for a sync or for the disk."""
        checkpoint = self._checkpoint
        if checkpoint is None or self._checkpoint_busy or self.failed:
            return
        work = checkpoint.step()
        if work is None:
            if checkpoint.done:
                self._checkpoint = None
                self._observer.checkpoint_ended()
            return
        self._checkpoint_busy = True
        self._do(self._threads.sync, partial(self._checkpoint_work, work), self._checkpoint_stepped)

    def _checkpoint_stepped(self) -> None:
        self._checkpoint_busy = False
        self.now()
        self.step_checkpoint()
        self.run()

    def tick(self) -> None:
        """Check the time limits of all connections and streams, about once a second.

        With many connections this takes several slices; the next tick begins after the last slice.
        """
        if not self._unticked:
            self._woke = self._clock.paused_ms > self._paused_ms
            self._paused_ms = int(self._clock.paused_ms)
            self._unticked = self.shells
            self._unticked.reverse()
            self._tick_some()
        self._broker.tick()
        self.run()

    def _tick_some(self) -> None:
        """Check the time limits of as many connections as a slice allows."""
        now_ms = self.now()
        core = self._core
        last = core.scheduler.spent + SLICE
        unticked = self._unticked
        while unticked and core.scheduler.spent < last:
            shell = unticked.pop()
            if shell.connection not in self._shells:
                continue
            if self._woke:
                shell.connection.resumed()
            shell.tick(now_ms)
            core.scheduler.spent += TICK
        if unticked:
            self._loop.call_soon(self._tick_on)

    def _tick_on(self) -> None:
        if not self.failed:
            self._tick_some()
            self.run()


def _give(waiting: asyncio.Future[T], found: T) -> None:
    """Resolve a future with a result, unless it was cancelled."""
    if not waiting.done():
        waiting.set_result(found)


def _nothing() -> None:
    """Do nothing in the loop after a task."""


def _no_work(work: CheckpointWork) -> None:
    """Raise an error for checkpoint work before any checkpoint."""
    raise RuntimeError(f"no checkpoint is in progress for {work}")


def _resolve(waiting: list[asyncio.Future[None]]) -> None:
    """Resolve all futures in the list, and empty it."""
    for future in waiting:
        if not future.done():
            future.set_result(None)
    waiting.clear()
