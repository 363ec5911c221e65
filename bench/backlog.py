"""A queue with many messages: filled, drained in order, and what that takes of memory and disk.

Bodies begin with their number, and the generator ends with an error where one does not follow the
one before it: a drain that returns was in order and lost nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil
import sides

QUEUE: Final = "bench-backlog"

#: Messages unconfirmed at most; not acked at most, and how many an ack is for.
WINDOW: Final = 1000
PREFETCH: Final = 4000
ACK_EVERY: Final = 1000

#: Seconds that a load may take: the generator's own end (600) comes first.
SECONDS_MAX: Final = 180.0


def fill(side: sides.Side, messages: int, size: int) -> float:
    """Publish persistent messages to the durable queue; return the confirms per second."""
    flags = ["-P", "1", "-C", "0", "-c", str(WINDOW), "-d", "-o", "-k"]
    return _load(side, [*flags, "-s", str(size), "-n", str(messages)])["confirmed"]


def drain(side: sides.Side, messages: int) -> float:
    """Consume and ack all of the queue, and delete it; return the messages per second.

    Raises: GeneratorError: one was missing or out of order.
    """
    flags = ["-P", "0", "-C", "1", "-q", str(PREFETCH), "-a", str(ACK_EVERY), "-d", "-o"]
    return _load(side, [*flags, "-n", str(messages)])["delivered"]


def _load(side: sides.Side, flags: list[str]) -> dict[str, float]:
    _, generator = sides.cores("all")
    return sides.generate(side, flags, QUEUE, SECONDS_MAX, generator)


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    return int(psutil.Process(pid).memory_info().rss)


def peak(pid: int) -> int:
    """Return the most that a process has held since `forget_peak`, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell the peak of a process's memory")


def forget_peak(pid: int) -> None:
    """Let the peak begin at what the process holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def disk_bytes(directory: Path) -> int:
    """Return what the files of a data directory take on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))
