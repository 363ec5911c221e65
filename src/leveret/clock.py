"""Time, handed in: the core asks a `Clock` and never the operating system.

Wall time stamps messages; monotonic time measures heartbeats, timeouts and TTLs, so that a step of
the machine's clock ends nothing early.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """The two times that the core knows; both in milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        raise RuntimeError("a clock tells the wall time")

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed moment; it never goes back."""
        raise RuntimeError("a clock tells the monotonic time")


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
