"""How much memory and how many processors and threads this process may have, and who says so.

The machine has a number of each, and a control group may allow fewer: that of a container, of a
unit of systemd, or of a slice above either, by version 1 or 2.  Every group counts from the
process's own up to the top of what is mounted, and the least applies.

Each function takes the root of the file system, below which it reads /proc/self and what is mounted
for control groups.  What cannot be read limits nothing.
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

#: The files of a control group with a limit of memory; `memory.high` slows down whoever exceeds it.
_MEMORY_FILES: Final = ("memory.max", "memory.high", "memory.limit_in_bytes")

#: What says how much there is where no control group does.
_MACHINE: Final = "the machine"

#: How mountinfo writes a space, a tab, a line's end and a backslash.
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")

ROOT: Final = Path("/")


class TooFewThreads(Exception):
    """There may be fewer threads than a broker has; the text says what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Bound:
    """How much of something there may be, and what says so: a file, or the machine."""

    amount: int
    source: str

    def __str__(self) -> str:
        return f"{self.amount} ({self.source})"


def memory(root: Path = ROOT) -> Bound:
    """Return the bytes of memory that this process may have."""
    least = Bound(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _MACHINE)
    for group in _groups(root, "memory"):
        for name in _MEMORY_FILES:
            least = _lower(least, _number(group / name), group / name)
    return least


def processors(root: Path = ROOT) -> Bound:
    """Return how many processors this process may keep busy; a part of one counts as one."""
    least = Bound(os.cpu_count() or 1, _MACHINE)
    # It knows the processors of a cpuset, and those of `taskset`.
    least = _lower(least, len(os.sched_getaffinity(0)), "the affinity of the process")
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        least = _lower(least, _quotient(quota, period), group / "cpu.max")
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        least = _lower(least, _quotient(quota, period), group / "cpu.cfs_quota_us")
    return least


def threads(root: Path = ROOT) -> Bound:
    """Return how many threads there may be, those of other processes in its group included."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    least = Bound(1 << 30, _MACHINE)
    # It does not hold for root.
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        least = Bound(soft, "ulimit -u")
    for group in _groups(root, "pids"):
        least = _lower(least, _number(group / "pids.max"), group / "pids.max")
    return least


def check_threads(bound: Bound) -> None:
    """Check that a broker can have its threads.  Raises: TooFewThreads."""
    if bound.amount < THREADS_LEAST:
        raise TooFewThreads(
            f"the limit of threads is {bound}, and a broker needs {THREADS_LEAST}: raise it by "
            "TasksMax in the unit of systemd, by --pids-limit of the container, or by 'ulimit -u'"
        )


def _lower(least: Bound, amount: int | None, source: Path | str) -> Bound:
    """Return a bound, or the amount instead if there is one and it is less."""
    if amount is None or amount >= least.amount:
        return least
    return Bound(amount, str(source))


def _quotient(quota: str, period: str) -> int | None:
    """Return the processors that a quota of each period amounts to; None where there is none."""
    try:
        return -(-int(quota) // int(period)) if int(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None


def _number(path: Path) -> int | None:
    """Return the number in a file; None where it holds none, such as `max`."""
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    """Return the text of a file, nothing where there is none."""
    try:
        return path.read_text(errors="surrogateescape").strip()
    except OSError:
        return ""


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of the groups that this process is in, each before that above it."""
    mounts = _text(root / "proc/self/mountinfo").splitlines()
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        # Version 2 has one line, which names no controllers.
        if controllers and controller not in controllers.split(","):
            continue
        for top, shown in _mounted(mounts, controller if controllers else ""):
            # A container may see its own group at the top, and one that is above itself by "..".
            inside = PurePosixPath(path)
            within = inside.relative_to(shown) if inside.is_relative_to(shown) else PurePosixPath()
            place = root / top.relative_to("/")
            yield from (place / one for one in (within, *within.parents))


def _mounted(mounts: list[str], controller: str) -> Iterator[tuple[PurePosixPath, PurePosixPath]]:
    """Yield where control groups are mounted, and the group that is shown there.

    They are those of a controller of version 1, or of version 2 without a name.
    """
    for line in mounts:
        # Between the mount's own options and the kind of file system stand any number of fields.
        mount, _, system = line.partition(" - ")
        fields, (kind, *_, options) = mount.split(" "), system.split(" ")
        version_1 = kind == "cgroup" and controller in options.split(",")
        if version_1 if controller else kind == "cgroup2":
            shown, top = (
                _ESCAPED.sub(lambda code: chr(int(code[1], 8)), one) for one in fields[3:5]
            )
            yield PurePosixPath(top), PurePosixPath(shown)
