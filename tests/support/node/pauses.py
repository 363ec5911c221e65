"""Simulated pauses: a wait returns at once, after the events that the test planned for it."""

from __future__ import annotations

from collections.abc import Callable

from leveret.spark.connection.retries import Pause


class StepPause(Pause):
    """Time that advances with each wait; `meanwhile` is called with the seconds of each wait.

    With `after_seconds` it is called only once that much time has passed.
    """

    def __init__(
        self, meanwhile: Callable[[float], object] | None = None, after_seconds: float = 0.0
    ) -> None:
        self.waits: list[float] = []
        self._now = 0.0
        self._meanwhile = meanwhile
        self._after_seconds = after_seconds

    def now(self) -> float:
        return self._now

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.pass_by(seconds)
        if self._meanwhile is not None and self._now >= self._after_seconds:
            self._meanwhile(seconds)

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds
