"""Standard output as a pipe: the data that its reader has taken, and the loss of its reader.

A pipe buffers 64 KiB, so written data may not have been read yet; `leveret consume q | head -3`
would ack everything that fits.  A message is acked once the reader has taken its last byte.
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

#: How often the pipe is checked before pauses between the checks begin.
_QUICK_LOOKS: Final = 200
_WAIT_MS: Final = 1


class OutputPipe:
    """Standard output if it is a pipe; anything else takes its data at once."""

    def __init__(self) -> None:
        self._fd = sys.stdout.fileno()
        self._is_pipe = stat.S_ISFIFO(os.fstat(self._fd).st_mode)
        self._poll = select.poll()
        self._poll.register(self._fd, 0)

    def wait_until_read(self) -> None:
        """Wait until the reader has taken everything.  Raises: BrokenPipeError when it is gone."""
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
    """Discard the rest of the buffer of standard output, after its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
