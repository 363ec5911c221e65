"""The listener for clients of HareMQ, whose connections have a user and a vhost from the start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from leveret.broker.node.broker import Broker
from leveret.server.amqp import ClientProtocol, Log
from leveret.server.listener import Listener
from leveret.server.runner import Runner
from leveret.session.admission import Admission, Slot
from leveret.session.client_session import ClientSession
from leveret.session.haremq.connection import HareConnection, HareShared
from leveret.session.settings import Peer, SessionSettings

#: What the log and the listing of connections call the protocol.
PROTOCOL: Final = "HareMQ"

#: Seconds without a byte from a peer before the system asks whether it is there, between two such
#: questions, and how many remain without an answer: the protocol has no heartbeat.
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class HareProtocol(ClientProtocol):
    """One connection's socket."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session of a new connection, and have the system look after a silent peer."""
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        super().connection_made(transport)


class HareListener(Listener):
    """Accepts HareMQ's clients on one address."""

    def __init__(
        self,
        runner: Runner,
        broker: Broker,
        settings: SessionSettings,
        shared: HareShared,
        admission: Admission,
        log: Log,
        say: Callable[[str, str], None],
    ) -> None:
        super().__init__(runner, admission, log, say, PROTOCOL)
        self._broker = broker
        #: What new connections begin with; others may take their place.
        self.settings = settings
        self._shared = shared

    def make(self, network: str) -> tuple[asyncio.Protocol, Slot]:
        """Return the protocol of a new connection, and its slot."""
        protocol = HareProtocol(self, network)
        return protocol, protocol.slot

    def connect(self, peer: Peer) -> ClientSession:
        """Return the session of a new connection."""
        return HareConnection(self._broker, self.settings, self._shared, peer, self.runner.now())
