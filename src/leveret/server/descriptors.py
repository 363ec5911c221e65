"""How many descriptors the process may have, and how many of them are for connections.

The store needs descriptors when it must write, and a process that has none left cannot open a
segment: so connections get what is left of the limit after all that the broker may need itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Final

from leveret.limits import CONNECTIONS_MAX, DESCRIPTORS_SPARE, STORE_FILES_MAX

#: Fewer connections than these are no broker; for fewer than those the log says what to do.
CONNECTIONS_LEAST: Final = 8
CONNECTIONS_WISHED: Final = 1000

REMEDY: Final = (
    "raise it by 'ulimit -n' in the shell that starts the broker, by LimitNOFILE in the unit of "
    "systemd, or by --ulimit nofile of the container"
)


class TooFewDescriptors(Exception):
    """The limit of open files leaves no room for connections; the text says what to do."""


def limit() -> int:
    """Return how many descriptors the process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def raise_limit() -> None:
    """Raise the soft limit to the hard one, but not beyond what all connections would need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + STORE_FILES_MAX + DESCRIPTORS_SPARE + 1024
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def used() -> int:
    """Return how many descriptors the process has open."""
    try:
        # Listing takes one itself.
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 (it makes no paths of them)
    except OSError:
        return 0


def connections_max() -> int:
    """Return how many connections there is room for beside what is open now.

    The store's spare ones are among those.  Raises: TooFewDescriptors.
    """
    found = limit()
    room = min(CONNECTIONS_MAX, found - used() - DESCRIPTORS_SPARE)
    if room < CONNECTIONS_LEAST:
        needed = found - room + CONNECTIONS_WISHED
        raise TooFewDescriptors(
            f"the limit of open files is {found}, which leaves no room for connections; "
            f"{needed} leave room for {CONNECTIONS_WISHED}: {REMEDY}"
        )
    return room


def warning(room: int) -> str:
    """Return what the log says of room for so many connections, nothing where it is enough."""
    if room >= CONNECTIONS_WISHED:
        return ""
    return f"the limit of open files is {limit()}: room for {room} connections; {REMEDY}"
