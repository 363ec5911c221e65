"""Measures the free space on the disk, and blocks publishers or requests checkpoints accordingly.

Below the reserve, publishers are blocked (`Broker.judge_disk`) and checkpoints are taken, because
acks and deletes free space only when old files are removed.  Above it, the ballast is created
again.  If the disk is full despite the reserve, because other programs fill it too, the sync thread
releases the ballast (`store/journal/files.py`), and this module logs that.

This module is deliberately not compiled, because it uses asyncio.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from leveret.broker.broker import Broker
from leveret.server.runner import Task
from leveret.store.ballast import Ballast
from leveret.store.disk import Disk, DiskFull
from leveret.store.records.record import DIGEST_BYTES, GROUP_HEADER_BYTES, RECORD_HEAD_BYTES

#: The free disk space is measured again after this many written bytes.  Measuring costs the sync
#: thread a thread switch, so it does not measure after each group.
_DISK_MEASURE_BYTES: Final = 1024 * 1024


#: An unused file is removed after this many checkpoints; the last two keep their files.
CHECKPOINTS_TO_FREE: Final = 3

#: The maximum size of the last records of a checkpoint.
_RECORDS_ROOM: Final = 1024 * 1024

#: The bytes that a checkpoint itself writes to the new journal.
_MARK_BYTES: Final = GROUP_HEADER_BYTES + DIGEST_BYTES + RECORD_HEAD_BYTES + 8


class Space:
    """Monitors the disk of one broker.  `measure` and `wrote` are called in the sync thread."""

    def __init__(
        self,
        disk: Disk,
        broker: Broker,
        ballast: Ballast,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._disk = disk
        self._broker = broker
        self._ballast = ballast
        self._log = log
        self._free = disk.free()
        self._unmeasured = 0
        self._asked = False
        #: True while a group waits for disk space.
        self.stuck = False
        #: The maximum number of bytes that the checkpoint in progress has yet to write.
        self.owed_bytes = 0
        self._checkpoints_left = 0
        self._chunks_wait = False

    # -- in the sync thread ------------------------------------------------------------------------

    def measure(self) -> None:
        """Measure the free space of the disk.  Raises: StorageFailure."""
        self._unmeasured = 0
        self._free = self._disk.free()

    def wrote(self, size: int) -> None:
        """Count written bytes; measure the disk from time to time.  Raises: StorageFailure."""
        self._free -= size
        self._unmeasured += size
        if self._unmeasured >= _DISK_MEASURE_BYTES:
            self.measure()

    def check_checkpoint(self, size: int) -> None:
        """Check that a checkpoint may write `size` bytes.

        Half of the reserve is kept for acks and deletes, unless the rest of the checkpoint fits in
        any case.  A checkpoint writes no more than the messages in memory, so it may fit on the
        disk later, when consumers have received and acked some of them.

        Raises: DiskFull if the write must be repeated later; StorageFailure.
        """
        self.measure()
        broker = self._broker
        left = self._free - size
        if (
            left < broker.disk_free_bytes_min // 2
            and left < broker.core.memory.held_bytes + _RECORDS_ROOM
        ):
            raise DiskFull("checkpoint", "segments", "it waits for room", errno.ENOSPC)

    def _look(self, then: Callable[[], None]) -> Callable[[], None]:
        """Measure the disk, and create the ballast if there is room for it."""
        self.measure()
        ballast = self._ballast
        spare = self._broker.disk_free_bytes_min * 9 // 8 + ballast.bytes_max
        if not ballast.whole and not self.stuck and self._free >= spare and ballast.fill():
            self.measure()
            self._log.info("the ballast is created", bytes=int(ballast.bytes_max))
        return partial(self._looked, then)

    # -- in the loop -------------------------------------------------------------------------------

    def look(self, submit: Callable[[Task], None], then: Callable[[], None]) -> None:
        """Measure the disk in the sync thread, block or unblock publishers, then call `then`.

        `submit` runs a task in the sync thread.
        """
        if not self._asked:
            self._asked = True
            submit(partial(self._look, then))

    def _looked(self, then: Callable[[], None]) -> None:
        self._asked = False
        self.judge()
        then()

    def judge(self) -> None:
        """Block or unblock publishers according to the last measurement."""
        broker = self._broker
        alarm = broker.disk_alarm
        broker.judge_disk(0 if self.stuck else self._free, self.owed_bytes)
        if alarm == broker.disk_alarm:
            return
        figures = {"free": int(broker.disk_free_bytes), "limit": int(broker.disk_free_bytes_min)}
        if alarm:
            self._log.info("the disk has room again, publishers are unblocked", **figures)
        else:
            self._log.warning("low on disk, publishers are blocked", **figures)
            self._checkpoints_left = CHECKPOINTS_TO_FREE

    def no_room(self, full: DiskFull) -> None:
        """Log that a group does not fit on the disk; the runner repeats the write."""
        if not self.stuck:
            self.stuck = True
            self._log.error(
                "no room on the disk, nothing is confirmed until there is", reason=str(full)
            )
        self.judge()

    def no_room_for_chunks(self, full: DiskFull) -> None:
        """Log that the chunks of a checkpoint or of spilled messages wait for disk space."""
        if not self._chunks_wait:
            self._chunks_wait = True
            self._log.warning("chunks wait for room on the disk", reason=str(full))
        self.judge()

    @property
    def spare_bytes(self) -> int:
        """The bytes that compaction may copy; half of the reserve is kept for acks and deletes."""
        return max(0, self._free - int(self._broker.disk_free_bytes_min) // 2)

    def checkpoint_ended(self) -> None:
        """Reset the state of the checkpoint; the caller measures the freed space."""
        self.owed_bytes = 0
        self._chunks_wait = False

    def found_room(self) -> None:
        """Log that a waiting group was written; called after each group."""
        if self.stuck:
            self.stuck = False
            self._log.info("room on the disk again, waiting records are written")

    def wants_checkpoint(self) -> bool:
        """Return whether a checkpoint may free space; called about once a second."""
        broker = self._broker
        if self.stuck:
            return False
        if broker.disk_alarm and broker.core.journal.bytes_since_roll > _MARK_BYTES:
            # Acks or deletes have been recorded since the last checkpoint.
            self._checkpoints_left = CHECKPOINTS_TO_FREE
        if self._checkpoints_left == 0:
            return False
        self._checkpoints_left -= 1
        return True
