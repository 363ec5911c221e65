"""Exponential back-off with jitter, until the limits on attempts or time are reached.

The clock and the source of randomness are passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.client.recovery.settings import Recovery


class Backoff:
    """The delays before the attempts that follow one loss at `now_ms` (monotonic).

    A limit of None means no limit.  `doublings` continues an earlier back-off.
    """

    def __init__(
        self,
        settings: Recovery,
        now_ms: int,
        attempts_max: int | None,
        seconds_max: float | None,
        doublings: int = 0,
    ) -> None:
        self._settings = settings
        self._attempts_max = attempts_max
        self._seconds_max = seconds_max
        self._began_ms = now_ms
        #: The number of attempts so far.
        self.attempts = 0
        #: How often the delay has doubled, and the last delay.
        self.doublings = doublings
        self.delay_ms = 0

    def next_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds to wait before the next attempt, or None to give up."""
        settings = self._settings
        most = self._attempts_max
        if most is not None and self.attempts >= most:
            return None
        whole = min(
            settings.delay_seconds_max, settings.delay_seconds * 2.0 ** min(self.doublings, 30)
        )
        delay_ms = int(whole * (0.5 + settings.random() / 2) * 1000)
        limit = self._seconds_max
        if limit is not None and now_ms + delay_ms - self._began_ms > limit * 1000:
            return None
        self.attempts += 1
        self.doublings += 1
        self.delay_ms = delay_ms
        return delay_ms
