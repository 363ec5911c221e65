"""When checkpoints are taken to give back what is dead in segment files.

A file goes when two checkpoints in a row did not name it, and what lives in it may have to be
copied forward first: so a round is a few checkpoints.  A round that gave nothing back is not
begun again before much more is dead.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.node.broker import Broker
from leveret.limits import RECLAIM_BYTES_MIN

#: Checkpoints of a round: one finds what is to be copied, two more let its file go.
_ROUND: Final = 4


class Reclaim:
    """Watches what is dead in the segment files of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left = _ROUND
        #: What the last round could not give back.
        self._floor = 0

    def wants(self) -> bool:
        """Tell whether more is dead than lives, and a checkpoint may change it."""
        use = self._broker.core.spill.use
        dead = int(use.dead())
        if dead - self._floor <= int(use.bytes_live) + RECLAIM_BYTES_MIN:
            return False
        return self._left > 0

    def checkpoint_ended(self) -> None:
        """Count the checkpoints of a round, and judge it at its end."""
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
