"""A program on its own terminal, as a person uses it: tests type input and read the screen."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Final, Self

#: The time limit of an answer, for a busy machine.
SECONDS_MAX: Final = 60.0

#: The escape sequences of a terminal, such as for cursor movement and colours.
_SEQUENCES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-B]|[=>78])")

#: Makes the terminal the controlling one, so that Ctrl-C works, and executes the program.
_OWNER: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """One program on a terminal, by default of 200 columns."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], columns: int = 200
    ) -> None:
        # These would override the actual size of the terminal.
        kept = {k: v for k, v in environment.items() if k not in {"COLUMNS", "LINES"}}
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWNER, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**kept, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        )
        os.close(slave)
        self._raw = b""
        #: The whole output, and the length of the part already examined, without sequences.
        self._seen = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    @property
    def raw(self) -> bytes:
        """The whole output of the program."""
        return self._raw

    @property
    def screen(self) -> str:
        """The whole output without escape sequences."""
        return _SEQUENCES.sub("", self._raw.decode("utf-8", "replace"))

    def type(self, text: str) -> None:
        """Type a text; a carriage return is Enter."""
        os.write(self._master, text.encode())

    def terminate(self) -> None:
        """Send the program SIGTERM."""
        self._process.terminate()

    def expect(self, text: str) -> None:
        """Wait until a text is written, after the text expected before."""
        deadline = time.monotonic() + SECONDS_MAX
        while (place := self.screen.find(text, self._seen)) < 0:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} is not in {self.screen[self._seen :]!r}")
        self._seen = place + len(text)

    def wait(self) -> int:
        """Wait for the end of the program; return its exit code."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._read(deadline):
            pass
        return self._process.wait(SECONDS_MAX)

    def _read(self, deadline: float) -> bool:
        """Read more output; return False at the end, or on a timeout."""
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._master], [], [], left)[0]:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            return False  # EIO: on Linux, nobody has the other side open
        self._raw += data
        return bool(data)
