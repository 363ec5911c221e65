"""Time, handed in: the core asks a `Clock` and never the operating system.

Wall time stamps messages; monotonic time measures heartbeats, timeouts and TTLs, so that a step of
the machine's clock ends nothing early.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: How often the broker looks at the clock at least (ms), and how much later a busy one may do so.
TICK_MS: Final = 1000
SLACK_MS: Final = 250

#: What stands for no deadline where a moment is expected (ms).
NO_DEADLINE: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """The two times that the core knows; both in milliseconds."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""

    @abstractmethod
    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment; it never goes back."""


class ManualClock(Clock):
    """A clock that moves only when it is told to: one seed, one run."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def advance(self, by_ms: int) -> None:
        """Move both times on by `by_ms` milliseconds (0 or more)."""
        if by_ms < 0:
            raise ValueError("time does not go back")
        self._now_ms += by_ms

    def wall_ms(self) -> int:
        """Return the hand-set wall time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the hand-set monotonic time."""
        return self._now_ms


@final
class LivedClock(Clock):
    """The times of another clock, the monotonic one without the pauses of the process.

    A process that is stopped (SIGSTOP, a virtual machine that is moved, a debugger) or that stalls
    for seconds reads nothing: what its peers sent meanwhile waits in their sockets.  So none of
    that time may count as their silence, whether for a heartbeat, a login, an ack or a request.

    Somebody looks at this clock every `TICK_MS`, because the broker's tick does.  A longer gap
    between two looks is a pause, and what it has too much does not pass here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms: i64 = clock.monotonic_ms()
        #: All pauses so far.
        self.paused_ms: i64 = 0

    def moved(self, by_ms: int) -> None:
        """Count `by_ms` that the other clock was moved on by as lived, and not as a pause."""
        self._looked_ms += by_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch; they pass in pauses too."""
        return self._clock.wall_ms()

    def monotonic_ms(self) -> int:
        """Return how many milliseconds the process lived since some fixed moment."""
        now_ms: i64 = self._clock.monotonic_ms()
        gap_ms: i64 = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms > TICK_MS + SLACK_MS:
            self.paused_ms += gap_ms - TICK_MS
        return int(now_ms - self.paused_ms)
