"""Snapshots of connections for the management API; see `leveret.broker.admin.stats`."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Link
from leveret.broker.node.broker import Broker
from leveret.session.connection.connection import Connection
from leveret.session.states import CLOSING, HALT_ALARM, HALT_OUTPUT, HALT_SPILL, HALT_SYNC, OPEN


@final
class ConnectionStats:
    """One client connection; times are wall time in ms."""

    def __init__(self, connection: Connection) -> None:
        peer = connection.peer
        vhost = connection.vhost
        self.name: Final = connection.name
        self.user: Final = connection.user
        self.vhost: Final = "" if vhost is None else vhost.name
        self.state: Final = _state(connection)
        self.mechanism: Final = connection.handshake.mechanism
        self.peer_host: Final = peer.host
        self.peer_port: Final = peer.port
        self.host: Final = peer.local_host
        self.port: Final = peer.local_port
        self.channel_count: Final = len(connection.channels.by_number)
        self.channels_max: Final = int(connection.channels_max)
        self.frame_bytes_max: Final = int(connection.frame_bytes_max)
        self.heartbeat_seconds: Final = int(connection.heartbeat.interval_ms) // 1000
        self.connected_at_ms: Final = int(connection.connected_at_ms)
        self.received_bytes: Final = int(connection.received_bytes)
        self.sent_bytes: Final = int(connection.sent_bytes)
        self.client_properties: Final = connection.handshake.client_properties


def _state(connection: Connection) -> str:
    """Return a connection's state in RabbitMQ's words."""
    if connection.state < OPEN:
        return "starting"
    if connection.state >= CLOSING:
        return "closing"
    if connection.halted & HALT_ALARM:
        return "blocked"
    return "flow" if connection.halted & (HALT_SYNC | HALT_OUTPUT | HALT_SPILL) else "running"


@final
class ConnectionListing:
    """The connections that are there, in slices."""

    def __init__(self, broker: Broker) -> None:
        self._left: Final[list[Link]] = list(broker.links)
        self._links: Final = broker.links
        self._next: i64 = 0

    def take(self, count: i64) -> list[ConnectionStats]:
        """Return the snapshots of the next `count` connections at most; none at the end."""
        taken: list[ConnectionStats] = []
        while len(taken) < count and self._next < len(self._left):
            link = self._left[self._next]
            self._next += 1
            if link in self._links and isinstance(link, Connection):
                taken.append(ConnectionStats(link))
        return taken
