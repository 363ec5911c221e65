"""Rate limits for log lines that unauthenticated peers cause: a burst, then one line a second.

The limit is per kind of line.  Lines are of one kind if they are equal up to the first quoted word,
except for numbers.  A logged line contains the number of omitted lines of its kind.
"""

from __future__ import annotations

import re
from typing import Final

from leveret.clock import Clock

#: The number of lines of a kind that may be logged at once; one more is allowed each second.
BURST: Final = 20

#: The maximum number of kinds; beyond it, all counts are reset.
_KINDS_MAX: Final = 256

_NUMBERS: Final = re.compile("[0-9]+")


class _Kind:
    """The remaining and the omitted lines of a kind, and the time of the last replenishment."""

    def __init__(self, now_ms: int) -> None:
        self.left = BURST
        self.since_ms = now_ms
        self.omitted = 0


class Quiet:
    """The rate limits of one log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        #: The number of omitted lines of all kinds.
        self.omitted = 0

    def judge(self, text: str) -> str | None:
        """Return the line to log, or None to omit it."""
        name = _NUMBERS.sub("0", text.partition("'")[0])[:100]
        now_ms = self._clock.monotonic_ms()
        kind = self._kinds.get(name)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            kind = self._kinds[name] = _Kind(now_ms)
        if gained := (now_ms - kind.since_ms) // 1000:
            kind.since_ms += gained * 1000
            kind.left = min(BURST, kind.left + gained)
        if kind.left == 0:
            kind.omitted += 1
            self.omitted += 1
            return None
        kind.left -= 1
        omitted, kind.omitted = kind.omitted, 0
        return f"{text} ({omitted} more like this were omitted)" if omitted else text
