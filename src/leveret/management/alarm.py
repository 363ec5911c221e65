"""Timeouts that do not count the time during which the process is suspended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from leveret.clock import Clock


class Alarm:
    """Calls a function in the current loop after `seconds` of running time."""

    def __init__(self, clock: Clock, seconds: float, call: Callable[[], object]) -> None:
        self._clock = clock
        self._call = call
        self._due_ms = clock.monotonic_ms() + seconds * 1000
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(seconds, self._judge)

    def cancel(self) -> None:
        """Cancel the call."""
        self._timer.cancel()

    def _judge(self) -> None:
        """Call the function, or continue to wait if the process was suspended."""
        left_ms = self._due_ms - self._clock.monotonic_ms()
        # Both clocks count in whole milliseconds.
        if left_ms > 2:
            self._timer = self._loop.call_later(left_ms / 1000, self._judge)
        else:
            self._call()


@contextlib.asynccontextmanager
async def timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError in the `with` block after `seconds`, not counting suspensions."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        alarm = Alarm(clock, seconds, lambda: limit.reschedule(loop.time()))
        try:
            yield
        finally:
            alarm.cancel()
