"""The server's functions and limits that the HTTP listeners use to accept connections."""

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

#: Takes the network of a peer; returns the protocol of the new connection, and its slot.
Make = Callable[[str], tuple[asyncio.Protocol, Slot]]

#: Accepts connections on a listening socket.  Takes the socket, the admission that limits the
#: connections, a `Make`, and whether connections are authenticated from the start.  Returns a
#: function that stops accepting.
Accept = Callable[[socket.socket, Admission, Make, bool], Callable[[], None]]


@dataclass(frozen=True)
class Doors:
    """The server's functions and limits for the HTTP listeners.

    `clock` does not advance while the process is suspended.  `accept` serves the Unix socket and
    the metrics, `accept_users` connections of users, possibly through a proxy, and `accept_tls`
    connections that begin with TLS.  Without certificates, `accept_tls` is None.
    """

    accept: Accept
    clock: Clock
    accept_users: Accept
    accept_tls: Accept | None = None
    #: The maximum number of open connections: of users, of Prometheus, and on the Unix socket.
    users_places: int = HTTP_CONNECTIONS_MAX
    metrics_places: int = METRICS_CONNECTIONS_MAX
    operator_places: int = OPERATOR_CONNECTIONS_MAX
