"""How many descriptors the process may have, and how many of them are for connections.

The store needs descriptors when it must write, and a process that has none left cannot open a
segment: so connections get what is left of the limit after all that the broker may need itself.
HTTP, metrics and the Unix socket each have a part of it: clients that take all connections of AMQP
cannot keep out operators, metrics or health checks.
"""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass
from typing import Final

from leveret.limits import (
    CONNECTIONS_MAX,
    DESCRIPTORS_SPARE,
    HTTP_CONNECTIONS_MAX,
    METRICS_CONNECTIONS_MAX,
    OPERATOR_CONNECTIONS_MAX,
    OPERATOR_CONNECTIONS_MIN,
    STORE_FILES_MAX,
)

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
    connections = CONNECTIONS_MAX + HTTP_CONNECTIONS_MAX + METRICS_CONNECTIONS_MAX
    connections += OPERATOR_CONNECTIONS_MAX
    wanted = connections + STORE_FILES_MAX + DESCRIPTORS_SPARE + 1024
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


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections may be open at once: of AMQP and HareMQ (`clients`), HTTP, and so on."""

    clients: int
    http: int
    metrics: int
    operator: int


def connection_limits() -> ConnectionLimits:
    """Divide the descriptors that are free now among the kinds of connections.

    The store has opened its spare descriptors already, and the first `OPERATOR_CONNECTIONS_MIN` of
    the operator are among `DESCRIPTORS_SPARE`.  Raises: TooFewDescriptors.
    """
    found = limit()
    room = found - used() - DESCRIPTORS_SPARE
    http = min(HTTP_CONNECTIONS_MAX, room // 4)
    metrics = min(METRICS_CONNECTIONS_MAX, max(room // 16, 2))
    operator = min(OPERATOR_CONNECTIONS_MAX - OPERATOR_CONNECTIONS_MIN, room // 16)
    clients = min(CONNECTIONS_MAX, room - http - metrics - operator)
    if clients < CONNECTIONS_LEAST:
        # At most three eighths are for other connections than those of clients.
        needed = found - room + 2 * CONNECTIONS_WISHED
        raise TooFewDescriptors(
            f"the limit of open files is {found}, which leaves no room for connections; "
            f"{needed} leave room for {CONNECTIONS_WISHED}: {REMEDY}"
        )
    return ConnectionLimits(clients, http, metrics, OPERATOR_CONNECTIONS_MIN + operator)


def warning(clients: int) -> str:
    """Return a warning if few clients can connect, or an empty text."""
    if clients >= CONNECTIONS_WISHED:
        return ""
    return f"the limit of open files is {limit()}: room for {clients} connections; {REMEDY}"
