"""Maintains a data directory while the broker runs: checkpoints, compaction, space and damage.

A checkpoint begins when the journal is long, when memory or disk is filling up, or when dead chunks
can be freed or damage can be dropped.  Compaction is planned between checkpoints, and the next
checkpoint performs it.  A chunk that fails its check on a read is reported once, and its bytes are
copied to `quarantine/`.

This module is deliberately not compiled, because it uses asyncio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from leveret.broker.broker import Broker
from leveret.broker.recovery.compaction import Compaction
from leveret.clock import Clock
from leveret.server.runner import Observer, Runner
from leveret.server.space import Space
from leveret.store.checkpoint.checkpoint import CheckpointSource, CheckpointStore, CheckpointWork
from leveret.store.checkpoint.files import CheckpointFiles
from leveret.store.damage import Damage, quarantine
from leveret.store.disk import Disk, DiskFull, StorageFailure
from leveret.store.format import JOURNAL_DIR

#: Checkpoints are taken to free dead bytes if they exceed the live bytes by more than this.
_RECLAIM_BYTES_MIN: Final = 64 * 1024 * 1024


#: Takes a planned compaction or None; returns the source of the broker's state for a checkpoint.
MakeSource = Callable[[Compaction | None], CheckpointSource]

#: The number of checkpoints in a round: enough to choose files, copy from them, and free them.
_ROUND: Final = 4


@dataclass(frozen=True)
class UpkeepLimits:
    """The thresholds for maintenance, from the settings of the same names."""

    journal_bytes_max: int
    compact_records_min: int
    compact_live_percent: int


class Upkeep(Observer):
    """Maintains one data directory.

    Set `wanted` to request a checkpoint as soon as possible.  `stopping` returns whether the broker
    is stopping.  `failed` is called if the disk is full and the broker cannot wait.
    """

    def __init__(
        self,
        limits: UpkeepLimits,
        broker: Broker,
        clock: Clock,
        log: structlog.typing.FilteringBoundLogger,
        disk: Disk,
        space: Space,
        runner: Runner,
        checkpoints: CheckpointStore,
        make_source: MakeSource,
        stopping: Callable[[], bool],
        failed: Callable[[StorageFailure], None],
    ) -> None:
        self.wanted = False
        #: True once the broker has started.
        self.started = False
        #: The thresholds; replaced on reload.
        self.limits = limits
        self._broker = broker
        self._clock = clock
        self._log = log
        self._disk = disk
        self._space = space
        self._runner = runner
        self._checkpoints = checkpoints
        self._make_source = make_source
        self._stopping = stopping
        self._failed = failed
        self._files = CheckpointFiles(disk)
        self._reclaim = Reclaim(broker)
        self._compaction: Compaction | None = None
        #: Compaction considers only segments with lower numbers, older than the last checkpoint.
        self._compact_below = 0
        #: The reported damaged chunks, by path and position.
        self._reported: set[tuple[str, int]] = set()

    # -- the runner's observer ---------------------------------------------------------------------

    def synced(self) -> None:
        """Check the disk space and the journal size after each sync."""
        self._space.found_room()
        self._space.judge()
        self._begin_checkpoint()

    def spilled(self) -> None:
        """Check the disk space after chunks were written."""
        self._look_at_room()

    def no_room(self, full: DiskFull) -> None:
        """Wait for disk space, but fail during start or stop, which cannot wait forever."""
        if not full.path.startswith(JOURNAL_DIR):
            self._space.no_room_for_chunks(full)
        elif self.started and not self._stopping():
            self._space.no_room(full)
        else:
            self._failed(full)

    def checkpoint_ended(self) -> None:
        """Check the disk space after a checkpoint, and plan the next compaction."""
        counts = self._broker.core.counts
        counts.checkpoints += 1
        counts.checkpoint_ms += self._clock.monotonic_ms() - counts.checkpoint_since_ms
        counts.checkpoint_since_ms = 0
        self._space.checkpoint_ended()
        self._look_at_room()
        compaction = self._compaction
        if (
            compaction is not None
            and compaction.done
            and compaction.begin(self._compact_below, self._space.spare_bytes)
        ):
            self._log.info("compaction", chunks=int(compaction.planned))
            self._runner.run()
        self._reclaim.checkpoint_ended()

    def found_damage(self) -> None:
        """Quarantine, count and log the chunks that failed their check on a read."""
        core = self._broker.core
        found, core.damaged = core.damaged, []
        for chunk in found:
            ref = chunk.ref
            damage = Damage(ref.path, ref.position, ref.size, chunk.what, chunk.records)
            place = (ref.path, int(ref.position))
            if place not in self._reported:
                # A chunk of a stream may be read repeatedly, but is reported once.
                self._reported.add(place)
                self._runner.submit(partial(self._quarantine, damage, chunk.data))

    # -- calls of the broker -----------------------------------------------------------------------

    def tick(self) -> None:
        """Check the disk space and the journal size, about once a second."""
        self._look_at_room()
        if not self._runner.in_checkpoint and self._space.wants_checkpoint():
            self.wanted = True
        self._begin_checkpoint()

    def hold_files(self, on: bool) -> None:
        """Prevent the removal of checkpoints' files, or allow it; runs in the sync thread."""
        self._files.hold(on)

    def _look_at_room(self) -> None:
        self._space.look(self._runner.submit, self._runner.run)

    # -- checkpoints -------------------------------------------------------------------------------

    def _begin_checkpoint(self) -> None:
        """Begin a checkpoint if one is requested or needed and none is in progress."""
        broker = self._broker
        journal = broker.core.journal
        # A body that a checkpoint interrupts must be written again, as a whole.
        times = 2 if journal.bodies_open > 0 else 1
        long = journal.bytes_since_roll > times * self.limits.journal_bytes_max
        wanted = self.wanted or broker.wants_chunks() or self._reclaim.wants()
        # The record of a clean stop must remain the last record.
        busy = self._runner.in_checkpoint or self._runner.failed or self._stopping()
        if not (long or wanted) or busy:
            return
        self.wanted = False
        compaction = self._compaction
        if compaction is None:
            limits = self.limits
            compaction = self._compaction = Compaction(
                broker.core, limits.compact_records_min, limits.compact_live_percent
            )
        source = self._make_source(compaction if compaction.done else None)
        self._compact_below = int(broker.core.spill.numbers.next)
        self._log.info("checkpoint", journal_bytes=int(journal.bytes_since_roll))
        self._space.owed_bytes = int(broker.checkpoint_bytes())
        broker.core.counts.checkpoint_since_ms = self._clock.monotonic_ms()
        self._runner.begin_checkpoint(
            self._checkpoints.begin(journal, source, self._clock.wall_ms()), self._write
        )
        self._runner.run()

    def _write(self, work: CheckpointWork) -> None:
        """Run a step of a checkpoint if the disk has room for it; runs in the sync thread."""
        size = work.size
        self._space.check_checkpoint(size)
        self._files.run(work)
        self._space.owed_bytes = max(0, self._space.owed_bytes - size)

    # -- damage ------------------------------------------------------------------------------------

    def _quarantine(self, damage: Damage, data: bytes) -> Callable[[], None]:
        """Copy the bytes of a damaged chunk to `quarantine/`; runs in the sync thread.

        If the copy fails, the broker continues, because no guarantee depends on it.
        """
        said = "damage found and quarantined"
        try:
            quarantine(self._disk, damage, data)
        except StorageFailure as failure:
            said = f"damage found, but not quarantined: {failure}"
        return partial(self._report, damage, said)

    def _report(self, damage: Damage, said: str) -> None:
        self._broker.core.damage.add(damage)
        self._log.error(said, place=str(damage))


class Reclaim:
    """Decides when to take checkpoints to free dead bytes in segment files.

    A file is removed after two consecutive checkpoints without it, and its live messages may have
    to be copied first, so a round takes a few checkpoints.  After a round that freed nothing, the
    next one waits until many more bytes are dead.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left = _ROUND
        #: The dead bytes that the last round could not free.
        self._floor = 0

    def wants(self) -> bool:
        """Return whether dead bytes far exceed live bytes, and a checkpoint may free some."""
        use = self._broker.core.spill.use
        dead = int(use.dead())
        if dead - self._floor <= int(use.bytes_live) + _RECLAIM_BYTES_MIN:
            return False
        return self._left > 0

    def checkpoint_ended(self) -> None:
        """Count a checkpoint of the round; after the last one, store the remaining dead bytes."""
        use = self._broker.core.spill.use
        dead = int(use.dead())
        self._floor = min(self._floor, dead)
        if dead - self._floor <= int(use.bytes_live) + _RECLAIM_BYTES_MIN:
            self._left = _ROUND
            return
        self._left -= 1
        if self._left <= 0:
            self._floor = dead
            self._left = _ROUND
