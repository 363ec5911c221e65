"""The process's limit on file descriptors, and its division among the kinds of connections.

The store needs descriptors to write; without a free one it cannot open a segment.  So connections
get the descriptors that the broker does not need itself.  HTTP, metrics and the Unix socket have
separate limits, so that clients that use up all AMQP connections cannot lock out operators, metrics
or health checks.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from typing import Final

from leveret.limits import (
    CONNECTIONS_MAX,
    HTTP_CONNECTIONS_MAX,
    METRICS_CONNECTIONS_MAX,
    OPERATOR_CONNECTIONS_MAX,
    STORE_FILES_MAX,
)

#: Descriptors reserved for late imports, for accepted sockets that wait for a slot, and for the
#: operator's connections.
_DESCRIPTORS_SPARE: Final = 32

#: The limit on connections on the Unix socket if there are few descriptors.
_OPERATOR_CONNECTIONS_MIN: Final = 8


#: With a lower limit on client connections than `CONNECTIONS_LEAST`, the broker does not start;
#: below `CONNECTIONS_WISHED`, it logs a warning.
CONNECTIONS_LEAST: Final = 8
CONNECTIONS_WISHED: Final = 1000

REMEDY: Final = (
    "raise it with 'ulimit -n' in the shell that starts the broker, LimitNOFILE in the systemd "
    "unit, or --ulimit nofile of the container"
)


class TooFewDescriptors(Exception):
    """The limit on open files leaves no room for connections; the text gives the remedy."""


def limit() -> int:
    """Return the maximum number of open descriptors of the process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def raise_limit() -> None:
    """Raise the soft limit up to the hard limit, but not beyond the need of all connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX + METRICS_CONNECTIONS_MAX
    connections += OPERATOR_CONNECTIONS_MAX
    wanted = connections + STORE_FILES_MAX + _DESCRIPTORS_SPARE + 1024
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def used() -> int:
    """Return the number of open descriptors of the process."""
    try:
        # Listing the directory uses one itself.
        return len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208 (no Path objects needed)
    except OSError:
        return 0


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits on open connections; `clients` are those of AMQP and HareMQ together."""

    clients: int
    http: int
    metrics: int
    operator: int


def connection_limits() -> ConnectionLimits:
    """Divide the free descriptors among the kinds of connections.

    The store has already opened its spare descriptors.  `_DESCRIPTORS_SPARE` includes
    `_OPERATOR_CONNECTIONS_MIN` connections of the operator.

    Raises: TooFewDescriptors.
    """
    found = limit()
    room = found - used() - _DESCRIPTORS_SPARE
    http = min(HTTP_CONNECTIONS_MAX, room // 4)
    metrics = min(METRICS_CONNECTIONS_MAX, max(room // 16, 2))
    operator = min(OPERATOR_CONNECTIONS_MAX - _OPERATOR_CONNECTIONS_MIN, room // 16)
    clients = min(CONNECTIONS_MAX, room - http - metrics - operator)
    if clients < CONNECTIONS_LEAST:
        # At most three eighths are for other connections than those of clients.
        needed = found - room + 2 * CONNECTIONS_WISHED
        raise TooFewDescriptors(
            f"the limit on open files is {found}, which leaves no room for connections; "
            f"{needed} would leave room for {CONNECTIONS_WISHED}: {REMEDY}"
        )
    return ConnectionLimits(clients, http, metrics, _OPERATOR_CONNECTIONS_MIN + operator)


def warning(clients: int) -> str:
    """Return a warning if only few clients can connect, or an empty string."""
    if clients >= CONNECTIONS_WISHED:
        return ""
    return f"the limit on open files is {limit()}: room for {clients} connections; {REMEDY}"
