"""What the HTTP listeners are handed in: how sockets are accepted, who gets a place, the time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from leveret.clock import Clock
from leveret.limits import (
    HTTP_CONNECTIONS_MAX,
    METRICS_CONNECTIONS_MAX,
    OPERATOR_CONNECTIONS_MAX,
)
from leveret.session.admission import Admission, Slot

#: Makes the protocol of a connection from a network, and its slot.
Make = Callable[[str], tuple[asyncio.Protocol, Slot]]

#: Accepts on a listening socket, by the places of an admission and with what makes its connections;
#: True says that its connections are authenticated from the start.  What it returns ends it.
Accept = Callable[[socket.socket, Admission, Make, bool], Callable[[], None]]


@dataclass(frozen=True)
class Doors:
    """The doors of a broker.

    `clock` stands still while the process is suspended.  `accept` is for the Unix socket and for
    metrics, `accept_users` for connections of users, which may come through a proxy, and
    `accept_tls` for those that begin with TLS; it is None without certificates.
    """

    accept: Accept
    clock: Clock
    accept_users: Accept
    accept_tls: Accept | None = None
    #: How many connections may be open at once: of users, of Prometheus, and on the Unix socket.
    users_places: int = HTTP_CONNECTIONS_MAX
    metrics_places: int = METRICS_CONNECTIONS_MAX
    operator_places: int = OPERATOR_CONNECTIONS_MAX
