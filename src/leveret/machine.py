"""The memory, processors and threads that this process may use, and the source of each limit.

A control group (version 1 or 2) may allow less than the machine has: the group of a container, of a
systemd unit, or of a slice that contains them.  All groups from the process's own to the top of the
mount are read, and the lowest limit applies.

Each function reads /proc and the mounts of control groups below `root`.  A file that cannot be read
sets no limit.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from leveret.limits import THREADS_LEAST

#: The files of a control group that limit memory; `memory.high` throttles a process.
_MEMORY_FILES: Final = ("memory.max", "memory.high", "memory.limit_in_bytes")

#: The source of a limit that is not set by a control group.
_MACHINE: Final = "the machine"

#: The escape of a space, a tab, a line feed or a backslash in mountinfo.
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

ROOT: Final = Path("/")


class TooFewThreads(Exception):
    """The limit on threads is too low for a broker; the text explains how to raise it."""


@dataclass(frozen=True, slots=True, order=True)
class Bound:
    """An upper bound, and its source: a file, or the machine."""

    amount: int
    source: str

    def __str__(self) -> str:
        return f"{self.amount} ({self.source})"


def memory(root: Path = ROOT) -> Bound:
    """Return the bytes of memory that this process may use."""
    least = Bound(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _MACHINE)
    for group in _groups(root, "memory"):
        for name in _MEMORY_FILES:
            least = _lower(least, _number(group / name), group / name)
    return least


def processors(root: Path = ROOT) -> Bound:
    """Return the number of processors that this process may use, rounded up."""
    least = Bound(os.cpu_count() or 1, _MACHINE)
    # The affinity reflects cpusets and `taskset`.
    least = _lower(least, len(os.sched_getaffinity(0)), "the affinity of the process")
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        least = _lower(least, _quotient(quota, period), group / "cpu.max")
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        least = _lower(least, _quotient(quota, period), group / "cpu.cfs_quota_us")
    return least


def threads(root: Path = ROOT) -> Bound:
    """Return the maximum number of threads, including those of other processes in the group."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    least = Bound(1 << 30, "no limit")
    # This limit does not apply to root.
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        least = Bound(soft, "ulimit -u")
    for group in _groups(root, "pids"):
        least = _lower(least, _number(group / "pids.max"), group / "pids.max")
    return least


def check_threads(bound: Bound) -> None:
    """Check that a broker can start all its threads.  Raises: TooFewThreads."""
    if bound.amount < THREADS_LEAST:
        raise TooFewThreads(
            f"the limit on threads is {bound}, but a broker needs {THREADS_LEAST}: raise it with "
            "TasksMax in the systemd unit, --pids-limit of the container, or 'ulimit -u'"
        )


def _lower(least: Bound, amount: int | None, source: Path | str) -> Bound:
    """Return the lower of a bound and an amount; an amount of None is unlimited."""
    if amount is None or amount >= least.amount:
        return least
    return Bound(amount, str(source))


def _quotient(quota: str, period: str) -> int | None:
    """Return the number of processors for a quota per period, or None if there is no quota."""
    try:
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None


def _number(path: Path) -> int | None:
    """Return the number in a file, or None for text such as `max` or a negative number."""
    try:
        number = int(_text(path))
    except ValueError:
        return None
    return number if number >= 0 else None


def _text(path: Path) -> str:
    """Return the text of a file, or "" if it cannot be read.

    The caller must split it only at line feeds: a user who can mount, for example with FUSE, can
    choose a mount name with any other character.
    """
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape").strip(" \n")
    except (OSError, ValueError):
        return ""


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control groups, each before its parent."""
    mounts = _text(root / "proc/self/mountinfo").split("\n")
    for line in _text(root / "proc/self/cgroup").split("\n"):
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        # The line of version 2 has no names of controllers.
        if not hierarchy or (controllers and controller not in controllers.split(",")):
            continue
        for top, shown in _mounted(mounts, controller if controllers else ""):
            # In a container, the top of the mount may be the container's group, and the path of the
            # process may point outside it with "..".
            inside = PurePosixPath(path)
            within = inside.relative_to(shown) if inside.is_relative_to(shown) else PurePosixPath()
            place = root / top.relative_to("/")
            yield from (place / one for one in (within, *within.parents))


def _mounted(mounts: list[str], controller: str) -> Iterator[tuple[PurePosixPath, PurePosixPath]]:
    """Yield the mount points of control groups, and the group at the top of each.

    An empty `controller` selects version 2; a name selects that controller of version 1.
    """
    for line in mounts:
        # The number of optional fields before " - " varies.
        fields, system = (part.split(" ") for part in (line + " - ").split(" - ")[:2])
        if len(fields) < 5 or len(system) < 3:
            continue
        kind, options = system[0], system[2]
        version_1 = kind == "cgroup" and controller in options.split(",")
        if version_1 if controller else kind == "cgroup2":
            shown, top = (
                _ESCAPED.sub(lambda code: chr(int(code[1], 8)), one) for one in fields[3:5]
            )
            yield PurePosixPath(top), PurePosixPath(shown)
