"""The HTTP API on TCP: for the users of the broker, with their passwords and permissions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from leveret.limits import HTTP_CONNECTIONS_MAX
from leveret.management.chunk_source import ChunkSource
from leveret.management.listening.doors import Doors, Make
from leveret.management.listening.listener import HttpListener, Log
from leveret.management.operator import Operator
from leveret.session.admission import Admission

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from leveret.broker.node.broker import Broker
    from leveret.management.keeper import Keeper

#: Connections that the kernel may hold for us before they are accepted.
_BACKLOG = 128


class TcpListener(HttpListener):
    """The HTTP API of one broker on a host and a port."""

    knows_all = False

    def __init__(
        self,
        host: str,
        port: int,
        broker: Broker,
        operator: Operator,
        chunks: ChunkSource,
        doors: Doors,
        keeper: Keeper,
        log: Log,
    ) -> None:
        admission = Admission(HTTP_CONNECTIONS_MAX, doors.whole)
        super().__init__(broker, operator, chunks, doors, admission, log)
        self._host = host
        self._keeper = keeper
        #: The port that is listened on; 0 before that if the kernel is to choose one.
        self.port = port

    def _listen(self) -> list[socket.socket]:
        sockets: list[socket.socket] = []
        found = socket.getaddrinfo(
            self._host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind, protocol)
                sockets.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address[0], self.port, *address[2:]))
                self.port = int(sock.getsockname()[1])
                sock.listen(_BACKLOG)
                sock.setblocking(False)
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        return sockets

    def _load(self) -> AppRunner:
        from leveret.management.api import make_users_runner
        from leveret.management.gate import Gate

        gate = Gate(self._broker, self._keeper, self._log)
        return make_users_runner(
            self._broker, self._operator, self._chunks, gate, self._doors.clock, self._log
        )

    def _make(self, runner: AppRunner) -> Make:
        from leveret.management.listening.connection import HttpConnections

        assert runner.server is not None
        connections = HttpConnections(
            runner.server, self.admission, self._doors.clock, log=self._log
        )
        return connections.make
