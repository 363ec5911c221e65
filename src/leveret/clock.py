"""Clocks: the core reads the time from an injected `Clock`, never from the operating system.

Messages are stamped with the wall time.  Heartbeats, timeouts and TTLs use the monotonic time, so
that a step of the machine's clock does not end them early.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

#: The interval of the broker's tick (ms), and the tolerated delay of a busy broker's tick.
TICK_MS: Final = 1000
SLACK_MS: Final = 250

#: The value that means "no deadline" (ms).
NO_DEADLINE: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """The wall time and the monotonic time of the core, in milliseconds."""

    @abstractmethod
    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch."""

    @abstractmethod
    def monotonic_ms(self) -> int:
        """Return the milliseconds since a fixed moment; they never decrease."""


class ManualClock(Clock):
    """A clock that only moves when a test or a simulation advances it."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def advance(self, by_ms: int) -> None:
        """Advance both times by `by_ms` milliseconds (0 or more)."""
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
    """A clock whose monotonic time excludes pauses of the process.

    A process that is stopped (by SIGSTOP, a migration of its virtual machine, a debugger) or that
    stalls for seconds does not read its sockets.  This time must not count as silence of its peers,
    for a heartbeat, a login, an ack or a request.

    The broker's tick reads this clock every `TICK_MS`.  A much longer gap between two reads is a
    pause, and its part beyond `TICK_MS` does not count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms: i64 = clock.monotonic_ms()
        #: The total length of all pauses.
        self.paused_ms: i64 = 0

    def moved(self, by_ms: int) -> None:
        """Do not count `by_ms`, by which the other clock was advanced, as a pause."""
        self._looked_ms += by_ms

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch, including pauses."""
        return self._clock.wall_ms()

    def monotonic_ms(self) -> int:
        """Return the milliseconds since a fixed moment, without pauses."""
        now_ms: i64 = self._clock.monotonic_ms()
        gap_ms: i64 = now_ms - self._looked_ms
        self._looked_ms = now_ms
        if gap_ms > TICK_MS + SLACK_MS:
            self.paused_ms += gap_ms - TICK_MS
        return int(now_ms - self.paused_ms)
