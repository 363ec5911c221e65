"""The interface of the HTTP listeners to the server: accepting connections, limits, the clock."""

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

#: Creates the protocol of a connection from a network, and its slot.
Make = Callable[[str], tuple[asyncio.Protocol, Slot]]

#: Accepts connections on a listening socket, with the slots of an admission and a `Make`; True
#: means that they are authenticated from the start.  Returns a function that stops it.
Accept = Callable[[socket.socket, Admission, Make, bool], Callable[[], None]]


@dataclass(frozen=True)
class Doors:
    """The server's means for the HTTP listeners.

    `clock` stands still while the process is suspended.  `accept` is for the Unix socket and for
    metrics, `accept_users` for connections of users, possibly through a proxy, and `accept_tls`
    for connections that begin with TLS; it is None without certificates.
    """

    accept: Accept
    clock: Clock
    accept_users: Accept
    accept_tls: Accept | None = None
    #: The maximum number of open connections: of users, of Prometheus, and on the Unix socket.
    users_places: int = HTTP_CONNECTIONS_MAX
    metrics_places: int = METRICS_CONNECTIONS_MAX
    operator_places: int = OPERATOR_CONNECTIONS_MAX
