"""Rate limits for log lines caused by strangers: a burst of each kind, then one a second.

A line that is logged says how many of its kind were omitted, so nothing is hidden.  Lines are of
one kind if they are equal up to the first quoted word, except for numbers.
"""

from __future__ import annotations

import re
from typing import Final

from leveret.clock import Clock

#: Lines of a kind that may be logged at once; afterwards one more per second.
BURST: Final = 20

#: The maximum number of kinds; beyond it all counts are reset.
_KINDS_MAX: Final = 256

_NUMBERS: Final = re.compile("[0-9]+")


class _Kind:
    """The remaining lines of a kind, the time they count from, and the number of omitted lines."""

    def __init__(self, now_ms: int) -> None:
        self.left = BURST
        self.since_ms = now_ms
        self.omitted = 0


class Quiet:
    """The rate limits of one log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        #: The number of all omitted lines.
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
