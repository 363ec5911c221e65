"""Standard output as a pipe: wait for its reader, and handle a closed pipe.

A pipe buffers 64 KiB of unread data, so `leveret consume q | head -3` could ack messages that
`head` never reads.  A message is therefore acked only after its last byte has been read.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import struct
import sys
import termios
from typing import Final

#: The number of checks of the pipe without a pause, before each check waits for `_WAIT_MS`.
_QUICK_LOOKS: Final = 200
_WAIT_MS: Final = 1


class OutputPipe:
    """Standard output; if it is not a pipe, written data counts as read."""

    def __init__(self) -> None:
        self._fd = sys.stdout.fileno()
        self._is_pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        self._poll = select.poll()
        self._poll.register(self._fd, 0)

    def wait_until_read(self) -> None:
        """Wait until the pipe is empty.  Raises: BrokenPipeError if the reader has exited."""
        looks = 0
        while self._is_pipe and self._unread():
            gone = self._poll.poll(_WAIT_MS if looks > _QUICK_LOOKS else 0)
            if gone and self._unread():
                raise BrokenPipeError("the reader of standard output is gone")
            os.sched_yield()
            looks += 1

    def _unread(self) -> int:
        """Return the number of unread bytes in the pipe."""
        held: int = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]
        return held


def leave_broken_pipe() -> None:
    """Discard buffered output after the reader of standard output has exited."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
