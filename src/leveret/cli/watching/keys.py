"""The keys that a user presses while a command shows something: read at once and not shown.

Ctrl-C stays what it is; Ctrl-Z does nothing, because a stopped command would leave the terminal as
it has it.
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
    """The keys of a terminal, or of nobody where standard input is none."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Return the keys that come within a time, or nothing at its end."""
        watched = [] if self._descriptor is None else [self._descriptor]
        if not select.select(watched, [], [], max(0.0, seconds))[0]:
            return ""
        assert self._descriptor is not None
        data = os.read(self._descriptor, 1024)
        if not data:
            # Nobody types here any more.
            self._descriptor = None
        return data.decode("ascii", "replace")


@contextmanager
def reading_keys() -> Iterator[Keys]:
    """Give the keys of the terminal, which is as it was at the end."""
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
