"""Time as an injected `Clock`: the core never asks the operating system.

Wall time stamps messages; monotonic time measures heartbeats, timeouts and TTLs, so that a step of
the machine's clock ends nothing early.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: The interval of the broker's tick (ms), and how late a busy broker may be for it.
TICK_MS: Final = 1000
SLACK_MS: Final = 250

#: The value for no deadline (ms).
NO_DEADLINE: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """The two times of the core; both in milliseconds."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""

    @abstractmethod
    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment, never decreasing."""


class ManualClock(Clock):
    """A clock that only moves when told to: one seed, one run."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def advance(self, by_ms: int) -> None:
        """Move both times forward by `by_ms` milliseconds (0 or more)."""
        if by_ms < 0:
            raise ValueError("time does not go back")
        self._now_ms += by_ms

    def wall_ms(self) -> int:
        """Return the manual wall time."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the manual monotonic time."""
        return self._now_ms


@final
class LivedClock(Clock):
    """The times of another clock, but with a monotonic time that excludes pauses of the process.

    A process that is stopped (SIGSTOP, a migration of its virtual machine, a debugger) or that
    stalls for seconds reads nothing: the input of its peers waits in their sockets.  So that time
    must not count as silence of the peers, for a heartbeat, a login, an ack or a request.

    The broker's tick reads this clock every `TICK_MS`.  A longer gap between two readings is a
    pause, and its excess does not count here.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms: i64 = clock.monotonic_ms()
        #: The length of all pauses so far.
        self.paused_ms: i64 = 0

    def moved(self, by_ms: int) -> None:
        """Count `by_ms`, by which the other clock was moved, as running time instead of a pause."""
        self._looked_ms += by_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch; this includes pauses."""
        return self._clock.wall_ms()

    def monotonic_ms(self) -> int:
        """Return for how many milliseconds the process has run since some fixed moment."""
        now_ms: i64 = self._clock.monotonic_ms()
        gap_ms: i64 = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms > TICK_MS + SLACK_MS:
            self.paused_ms += gap_ms - TICK_MS
        return int(now_ms - self.paused_ms)
