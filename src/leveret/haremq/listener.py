"""The listener for HareMQ's clients; all its connections have the same user and vhost."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from leveret.broker.broker import Broker
from leveret.haremq.connection import HareConnection, HareShared
from leveret.server.amqp import ClientProtocol, Log
from leveret.server.listener import Listener
from leveret.server.runner import Runner
from leveret.session.admission import Admission, Slot
from leveret.session.client_session import ClientSession
from leveret.session.settings import Peer, SessionSettings

#: The protocol's name in the log and in the listing of connections.
PROTOCOL: Final = "HareMQ"

#: TCP keepalive, because the protocol has no heartbeat: the seconds without input before the first
#: probe, the seconds between probes, and the number of unanswered probes that end a connection.
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class HareProtocol(ClientProtocol):
    """The asyncio protocol of one connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enable TCP keepalive, and start the session of a new connection."""
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
        #: The settings of new connections; replaced on reload.
        self.settings = settings
        self._shared = shared

    def make(self, network: str) -> tuple[asyncio.Protocol, Slot]:
        """Return the protocol of a new connection, and its slot."""
        protocol = HareProtocol(self, network)
        return protocol, protocol.slot

    def connect(self, peer: Peer) -> ClientSession:
        """Return the session of a new connection."""
        return HareConnection(self._broker, self.settings, self._shared, peer, self.runner.now())
