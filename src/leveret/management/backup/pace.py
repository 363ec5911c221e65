"""The send rate of backups, limited so that the broker's clients get enough of the loop's time."""

from __future__ import annotations

from leveret.limits import BACKUP_BYTES_PER_SECOND_MAX


class Pace:
    """One rate limit for all backups; unused capacity is not saved up."""

    def __init__(self, bytes_per_second: int = BACKUP_BYTES_PER_SECOND_MAX) -> None:
        self._bytes_per_second = bytes_per_second
        #: When the next piece may be sent, in seconds of the clock given to `wait_for`.
        self._free = 0.0

    def wait_for(self, size: int, now: float) -> float:
        """Return how many seconds to wait before a piece of `size` bytes is sent."""
        begin = max(self._free, now)
        self._free = begin + size / self._bytes_per_second
        return begin - now
