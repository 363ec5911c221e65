"""The last lines of the broker's log, for clients of the HTTP API.

Lines are stored in memory, as text without control characters, and numbered.  A reader requests
the lines after the last number that it has received, and also gets the number of lines dropped
since, so that no lines are retained for slow readers.

Invariant: the number of lines and their lengths never exceed the limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from leveret.escaping import escaped

#: The number of lines that are stored, and the characters of one line (at most 4 MB in all, usually
#: 0.1 MB).
LOG_LINES_KEPT: Final = 1000
LOG_LINE_CHARACTERS_MAX: Final = 1024


@dataclass(frozen=True)
class LogLine:
    """One line; `time` is formatted as in the log."""

    number: int
    time: str
    level: str
    text: str


class RecentLog:
    """The last lines of the log of one broker."""

    def __init__(self, kept: int = LOG_LINES_KEPT) -> None:
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self._number = 0
        #: Distinguishes the lines of this process from those of an earlier one.
        self.run: Final = secrets.token_hex(4)
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        #: The number of open event streams, by user.
        self.readers: Counter[str] = Counter()

    def add(self, time: str, level: str, text: str) -> None:
        """Add a line; any thread may call this."""
        shown = escaped(text[: LOG_LINE_CHARACTERS_MAX + 1])
        if len(shown) > LOG_LINE_CHARACTERS_MAX:
            shown = shown[: LOG_LINE_CHARACTERS_MAX - 1] + "…"
        with self._lock:
            self._number += 1
            self._lines.append(LogLine(self._number, time, level, shown))
        for loop, event in list(self._waiting):
            # The loop of the reader may have ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def after(self, number: int) -> tuple[int, list[LogLine]]:
        """Return the number of dropped lines after a line number, and the stored lines after it."""
        with self._lock:
            found = [line for line in self._lines if line.number > number]
        last = found[0].number - 1 if found else max(number, self._number)
        return max(0, last - number), found

    async def grown(self, number: int, seconds: float) -> None:
        """Wait until a line after a number is added, at most `seconds`."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(waiting)
        try:
            if self._number <= number:
                async with asyncio.timeout(seconds):
                    await waiting[1].wait()
        except TimeoutError:
            return
        finally:
            self._waiting.discard(waiting)
