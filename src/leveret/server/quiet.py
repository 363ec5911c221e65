"""Keeps a flood of strangers out of the log: of each kind of line a few, then one a second.

A line that is let through says how many of its kind were not, so that nothing is hidden.  Lines are
of one kind when they are the same up to the first quoted word, numbers apart.
"""

from __future__ import annotations

import re
from typing import Final

from leveret.clock import Clock

#: Lines of a kind that may follow each other at once; afterwards one more a second.
BURST: Final = 20

#: Kinds that are known; beyond it all begin afresh.
_KINDS_MAX: Final = 256

_NUMBERS: Final = re.compile("[0-9]+")


class _Kind:
    """What is left of a kind's lines, since when, and how many were left out."""

    def __init__(self, now_ms: int) -> None:
        self.left = BURST
        self.since_ms = now_ms
        self.omitted = 0


class Quiet:
    """Judges lines; one for each log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}
        #: All lines that were left out.
        self.omitted = 0

    def judge(self, text: str) -> str | None:
        """Return the line as the log is to have it, or None."""
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
        return f"{text} ({omitted} more like this were left out)" if omitted else text
