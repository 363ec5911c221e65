"""The room on the disk: measured, judged, and what follows from it.

Below the reserve publishers are blocked (`Broker.judge_disk`) and checkpoints are taken, because
acks and deletes give room back only when old files go; above it the ballast is made again.  When
the disk is full in spite of the reserve, because others fill it too, the thread that writes gives
the ballast up (`store/journal/files.py`) and this module says so.

Interpreted on purpose: it is asyncio's side of the house.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from leveret.broker.node.broker import Broker
from leveret.limits import DISK_MEASURE_BYTES
from leveret.server.runner import Task
from leveret.store.ballast import Ballast
from leveret.store.disk import Disk, DiskFull
from leveret.store.records.record import DIGEST_BYTES, GROUP_HEADER_BYTES, RECORD_HEAD_BYTES

#: Checkpoints until a file goes that nothing needs: the last two keep theirs.
CHECKPOINTS_TO_FREE: Final = 3

#: What the last records of a checkpoint may take.
_RECORDS_ROOM: Final = 1024 * 1024

#: What a checkpoint itself leaves in the journal that it makes short.
_MARK_BYTES: Final = GROUP_HEADER_BYTES + DIGEST_BYTES + RECORD_HEAD_BYTES + 8


class Space:
    """Watches the disk of one broker.  `measure` and `wrote` are for the thread that writes."""

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
        #: True while a group waits for room.
        self.stuck = False
        #: What the checkpoint that runs will write at most.
        self.owed_bytes = 0
        self._checkpoints_left = 0
        self._chunks_wait = False

    # -- in the thread that writes -----------------------------------------------------------------

    def measure(self) -> None:
        """Ask the disk.  Raises: StorageFailure."""
        self._unmeasured = 0
        self._free = self._disk.free()

    def wrote(self, size: int) -> None:
        """Note what was written, and now and then ask the disk.  Raises: StorageFailure."""
        self._free -= size
        self._unmeasured += size
        if self._unmeasured >= DISK_MEASURE_BYTES:
            self.measure()

    def check_checkpoint(self, size: int) -> None:
        """Check that a checkpoint may write `size` bytes.

        Half of the reserve is for acks and deletes, unless the rest of the checkpoint surely fits:
        it writes no more than what the messages in memory hold, so what does not fit now may fit
        when consumers have taken some.

        Raises: DiskFull: not now.  StorageFailure.
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
        """Measure, and make the ballast where there is room for it."""
        self.measure()
        ballast = self._ballast
        spare = self._broker.disk_free_bytes_min * 9 // 8 + ballast.bytes_max
        if not ballast.whole and not self.stuck and self._free >= spare and ballast.fill():
            self.measure()
            self._log.info("the ballast is made", bytes=int(ballast.bytes_max))
        return partial(self._looked, then)

    # -- in the loop -------------------------------------------------------------------------------

    def look(self, submit: Callable[[Task], None], then: Callable[[], None]) -> None:
        """Have the sync thread look at the disk by `submit`, judge what it finds, call `then`."""
        if not self._asked:
            self._asked = True
            submit(partial(self._look, then))

    def _looked(self, then: Callable[[], None]) -> None:
        self._asked = False
        self.judge()
        then()

    def judge(self) -> None:
        """Block publishers or let them go on, by the last measure."""
        broker = self._broker
        alarm = broker.disk_alarm
        broker.judge_disk(0 if self.stuck else self._free, self.owed_bytes)
        if alarm == broker.disk_alarm:
            return
        figures = {"free": int(broker.disk_free_bytes), "limit": int(broker.disk_free_bytes_min)}
        if alarm:
            self._log.info("the disk has room again, publishers go on", **figures)
        else:
            self._log.warning("low on disk, publishers are blocked", **figures)
            self._checkpoints_left = CHECKPOINTS_TO_FREE

    def no_room(self, full: DiskFull) -> None:
        """Hear that a group was not written for lack of room; it is tried again and again."""
        if not self.stuck:
            self.stuck = True
            self._log.error("no room, nothing is confirmed until there is", reason=str(full))
        self.judge()

    def no_room_for_chunks(self, full: DiskFull) -> None:
        """Hear that a checkpoint, or messages for which memory has no room, wait for some."""
        if not self._chunks_wait:
            self._chunks_wait = True
            self._log.warning("chunks wait for room on the disk", reason=str(full))
        self.judge()

    @property
    def spare_bytes(self) -> int:
        """What may be copied to make room: half of the reserve is for acks and deletes."""
        return max(0, self._free - int(self._broker.disk_free_bytes_min) // 2)

    def checkpoint_ended(self) -> None:
        """Hear that a checkpoint is done: what it gave back is measured next."""
        self.owed_bytes = 0
        self._chunks_wait = False

    def found_room(self) -> None:
        """Hear that a group was written."""
        if self.stuck:
            self.stuck = False
            self._log.info("room on the disk again, what waited is written")

    def wants_checkpoint(self) -> bool:
        """Tell whether a checkpoint may give room back; asked about once a second."""
        broker = self._broker
        if self.stuck:
            return False
        if broker.disk_alarm and broker.core.journal.bytes_since_roll > _MARK_BYTES:
            # Something was acked or deleted since the last one.
            self._checkpoints_left = CHECKPOINTS_TO_FREE
        if self._checkpoints_left == 0:
            return False
        self._checkpoints_left -= 1
        return True
