"""The keys pressed during a live display: read at once and not echoed.

Ctrl-C keeps its meaning; Ctrl-Z is disabled, because a stopped command would leave the terminal in
this mode.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


class Keys:
    """The keys of a terminal; none if standard input is not a terminal."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Return the keys pressed within a time, or an empty string."""
        watched = [] if self._descriptor is None else [self._descriptor]
        if not select.select(watched, [], [], max(0.0, seconds))[0]:
            return ""
        assert self._descriptor is not None
        data = os.read(self._descriptor, 1024)
        if not data:
            # The terminal is closed.
            self._descriptor = None
        return data.decode("ascii", "replace")


@contextmanager
def reading_keys() -> Iterator[Keys]:
    """Yield the keys of the terminal, and restore its mode at the end."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
