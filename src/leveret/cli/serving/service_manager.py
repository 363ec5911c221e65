"""Notifies a service manager that the broker has started, is alive, or stops.

The protocol is that of sd_notify(3), used by systemd and others: datagrams of lines such as
`READY=1` to the Unix socket in `NOTIFY_SOCKET`.  Without this variable nothing is sent.  A failed
notification is ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

#: The number of pings in each watchdog period.
PINGS_PER_PERIOD: Final = 3


class ServiceManager:
    """The service manager of this process, if `environment` names one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        #: An address that begins with @ is in the abstract namespace, without a file.
        self._address: Final = "\0" + address[1:] if address.startswith("@") else address
        #: The watchdog period in seconds; 0 for none.
        self.watchdog_seconds: Final = _watchdog_seconds(environment) if address else 0.0

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY=1`; ignore errors."""
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            # A manager that does not read must not block the broker.
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)

    def ready(self, status: str) -> None:
        """Report that the broker accepts connections."""
        self.notify("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """Report that the broker stops."""
        self.notify("STOPPING=1", "STATUS=stopping")

    async def ping(self) -> None:
        """Report periodically that the event loop runs, if the manager has a watchdog."""
        while self.watchdog_seconds:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / PINGS_PER_PERIOD)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return the period in `WATCHDOG_USEC`, or 0 if it is not set for this process."""
    process = environment.get("WATCHDOG_PID", "")
    microseconds = environment.get("WATCHDOG_USEC", "")
    if process not in ("", str(os.getpid())) or not microseconds.isdecimal():
        return 0.0
    return int(microseconds) / 1e6
