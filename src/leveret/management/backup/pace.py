"""How fast files are sent: no faster than the broker's clients can do without the loop's time."""

from __future__ import annotations

from leveret.limits import BACKUP_BYTES_PER_SECOND_MAX


class Pace:
    """One pace for all that send; what nobody took is not made up for later."""

    def __init__(self, bytes_per_second: int = BACKUP_BYTES_PER_SECOND_MAX) -> None:
        self._bytes_per_second = bytes_per_second
        #: When the next piece may go, in seconds of the clock that `wait_for` is told.
        self._free = 0.0

    def wait_for(self, size: int, now: float) -> float:
        """Return how many seconds to wait before a piece of `size` bytes is sent."""
        begin = max(self._free, now)
        self._free = begin + size / self._bytes_per_second
        return begin - now
