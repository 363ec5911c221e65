"""When to take checkpoints to free dead bytes in segment files.

A file is removed after two checkpoints in a row did not name it, and its live messages may have to
be copied forward first: so a round is a few checkpoints.  After a round that freed nothing, the
next round waits until many more bytes are dead.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.broker import Broker
from leveret.limits import RECLAIM_BYTES_MIN

#: Checkpoints of a round: one chooses the files to copy from, two more free them.
_ROUND: Final = 4


class Reclaim:
    """Watches the dead bytes in the segment files of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left = _ROUND
        #: The dead bytes that the last round could not free.
        self._floor = 0

    def wants(self) -> bool:
        """Return whether more bytes are dead than live, and a checkpoint may change that."""
        use = self._broker.core.spill.use
        dead = int(use.dead())
        if dead - self._floor <= int(use.bytes_live) + RECLAIM_BYTES_MIN:
            return False
        return self._left > 0

    def checkpoint_ended(self) -> None:
        """Count a checkpoint of the round; at the end of the round, check if it freed anything."""
        use = self._broker.core.spill.use
        dead = int(use.dead())
        self._floor = min(self._floor, dead)
        if dead - self._floor <= int(use.bytes_live) + RECLAIM_BYTES_MIN:
            self._left = _ROUND
            return
        self._left -= 1
        if self._left <= 0:
            self._floor = dead
            self._left = _ROUND
