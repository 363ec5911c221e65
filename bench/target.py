"""What a hostile scenario is handed: where the broker is, who may log in, and until when to go on.

A module `bench/hostile_<what>.py` holds scenarios: each function whose name begins with `attack_`
takes a `Target`, attacks until `target.over` says that it is enough, and is run in a process of its
own, which is killed a little later.  Its name without `attack_` is the scenario's, the first line
of its docstring what `--list` says of it.  `SETTINGS` and `DESCRIPTORS` of the module, by that
name, change the broker's settings (as environment variables without `LEVERET_`) and its limit of
descriptors.  The broker of a scenario that the module's `TLS` names has certificates.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.wire import raw

#: A user without any permission, and one that may do what it likes in a vhost of its own.
STRANGER: Final = raw.Login("stranger", "stranger")
TENANT: Final = raw.Login("tenant", "tenant", "tenant")

#: Users `cold-0` and so on, whom the broker has not verified yet, all with one password.
COLD_USERS: Final = 400
COLD_PASSWORD: Final = "right"  # noqa: S105

HOST: Final = "127.0.0.1"


@dataclass(frozen=True)
class Target:
    """A running broker; times are those of `time.monotonic`."""

    port: int
    http_port: int
    pid: int
    data_dir: Path
    until: float
    #: 0 where the scenario is not named by the `TLS` of its module.
    tls_port: int = 0
    https_port: int = 0

    @property
    def over(self) -> bool:
        """Whether the attack has lasted long enough."""
        return time.monotonic() >= self.until

    def dial(self, port: int = 0, source: str = HOST) -> socket.socket:
        """Return a connection, over AMQP unless `port` says otherwise, from a loopback address.

        Raises: OSError.
        """
        return socket.create_connection(
            (HOST, port or self.port), timeout=10, source_address=(source, 0)
        )

    def log_in(self, login: raw.Login = TENANT) -> raw.Connection:
        """Return an open connection of AMQP.  Raises: OSError, raw.Closed."""
        return raw.connect(f"amqp://{HOST}:{self.port}", login)

    def nap(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        time.sleep(max(0.0, min(seconds, self.until - time.monotonic())))
