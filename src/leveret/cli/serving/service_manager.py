"""What a service manager is told of a broker: that it has started, lives, and stops.

The protocol is that of sd_notify(3), which systemd and others speak: datagrams of lines such as
`READY=1` on the Unix socket that `NOTIFY_SOCKET` names.  Where that is not set nothing is sent, and
a manager that does not listen is no reason for a broker to fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final

#: Pings in each period after which the manager takes a silent broker for dead.
PINGS_PER_PERIOD: Final = 3


class ServiceManager:
    """Who started this process and waits to hear of it; nobody where `environment` names none."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        #: A name that begins with @ is one of the abstract namespace, which no file stands for.
        self._address: Final = "\0" + address[1:] if address.startswith("@") else address
        #: Seconds after which it takes a silent broker for dead; 0 where it never does.
        self.watchdog_seconds: Final = _watchdog_seconds(environment) if address else 0.0

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY=1`; one that cannot be sent is not sent."""
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            # A manager that reads no more must not hold up the broker.
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)

    def ready(self, status: str) -> None:
        """Tell that the broker takes connections."""
        self.notify("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        """Tell that the broker stops."""
        self.notify("STOPPING=1", "STATUS=stopping")

    async def ping(self) -> None:
        """Tell it again and again that the event loop runs, where it wants to hear that."""
        while self.watchdog_seconds:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / PINGS_PER_PERIOD)


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """Return what `WATCHDOG_USEC` says, where it is meant for this process."""
    process = environment.get("WATCHDOG_PID", "")
    microseconds = environment.get("WATCHDOG_USEC", "")
    if process not in ("", str(os.getpid())) or not microseconds.isdecimal():
        return 0.0
    return int(microseconds) / 1e6
