"""Running a broker under `strace` with a fault in its system calls, and reading what strace saw.

Every call of the kinds that are traced is a line with the time, the thread and the files' paths.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INJECTED: Final = "(INJECTED)"

#: A line of the log: thread, seconds since the epoch, and the call.
LINE: Final = re.compile(r"^(\d+) +(\d+\.\d+) (.*)$")

#: A cumulative or single confirm in what is written to a socket: class 60, method 80.
ACK: Final = r"\x00\x3c\x00\x50"


def missing() -> str:
    """Return why this machine cannot do it; nothing if it can."""
    return "" if shutil.which("strace") else "strace is not installed"


def command(log: Path, fault: str, also: Sequence[str] = (), within: str = "") -> list[str]:
    """Return the words before a command that run it with `fault`, such as `fsync:error=EIO:when=3`.

    The process is the caller's own child (-D), as it would be without strace.  `also` names calls
    that are traced only; `within` keeps to calls on one path.  Not with --seccomp-bpf: there strace
    6.1 forgets a fault from the second hit on.
    """
    calls = ",".join([fault.partition(":")[0], *also])
    words = ["strace", "-D", "-f", "-q", "-y", "-ttt", "-xx", "-s", "65536", "-o", str(log)]
    if within:
        words += ["-P", within]
    return [*words, "-e", f"trace={calls}", "-e", f"inject={fault}"]


@dataclass(frozen=True)
class Call:
    """One line of strace's log."""

    thread: int
    seconds: float
    text: str

    @property
    def failed(self) -> bool:
        """Whether the fault hit it."""
        return self.text.endswith(INJECTED)


def calls(log: Path) -> list[Call]:
    """Return what strace wrote, in its order."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        match = LINE.match(line)
        if match:
            found.append(Call(int(match[1]), float(match[2]), match[3]))
    return found
