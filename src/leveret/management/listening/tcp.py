"""The HTTP API on TCP: for the users of the broker, with their passwords and permissions."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from leveret.management.chunk_source import ChunkSource
from leveret.management.listening.doors import Accept, Doors, Make
from leveret.management.listening.listener import HttpListener, Log
from leveret.management.operator import Operator
from leveret.session.admission import Admission

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from leveret.broker.broker import Broker
    from leveret.management.keeper import GateKeeper

#: The backlog of the listening sockets, in which the first connections wait while the framework is
#: loaded.  A connection beyond it seems open to its peer, but is accepted only when the peer
#: retransmits, seconds later.
_BACKLOG = 1024


def listen_on(host: str, port: int) -> tuple[list[socket.socket], int]:
    """Return sockets that listen on a host and a port (0 for any), and the port.

    Raises: OSError.
    """
    sockets: list[socket.socket] = []
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address[0], port, *address[2:]))
            port = int(sock.getsockname()[1])
            sock.listen(_BACKLOG)
            sock.setblocking(False)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets, port


class TcpListener(HttpListener):
    """The HTTP API for the users of one broker, on any number of addresses."""

    knows_all = False

    def __init__(
        self,
        broker: Broker,
        operator: Operator,
        chunks: ChunkSource,
        doors: Doors,
        keeper: GateKeeper,
        log: Log,
    ) -> None:
        admission = Admission(doors.users_places)
        super().__init__(broker, operator, chunks, doors, admission, log)
        self._keeper = keeper
        self._bound: list[socket.socket] = []
        #: The sockets whose connections begin with TLS.
        self._with_tls: set[socket.socket] = set()

    def bind(self, host: str, port: int, tls: bool = False) -> int:
        """Bind to another address and return its port; call before `start`.  Raises: OSError."""
        sockets, port = listen_on(host, port)
        self._bound += sockets
        if tls:
            self._with_tls.update(sockets)
        return port

    def _listen(self) -> list[socket.socket]:
        return self._bound

    def _accept_of(self, sock: socket.socket) -> Accept:
        accept = self._doors.accept_tls if sock in self._with_tls else self._doors.accept_users
        assert accept is not None
        return accept

    def _load(self) -> AppRunner:
        from leveret.management.api import make_users_runner
        from leveret.management.gate import Gate

        gate = Gate(self._broker, self._keeper, self._log, self._doors.clock)
        return make_users_runner(
            self._broker, self._operator, self._chunks, gate, self._doors.clock, self._log
        )

    def _make(self, runner: AppRunner) -> Make:
        from leveret.management.connections.connection import HttpConnections

        assert runner.server is not None
        connections = HttpConnections(
            runner.server, self.admission, self._doors.clock, log=self._log
        )
        return connections.make
