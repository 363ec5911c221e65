"""A listener: the sockets that accept AMQP connections and what their sessions are made of."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from leveret.broker.node.broker import Broker
from leveret.server.acceptor import Acceptor
from leveret.server.amqp import Accepting, AmqpProtocol, Log
from leveret.server.runner import Runner
from leveret.session.admission import Admission, Slot
from leveret.session.authentication import Authenticator
from leveret.session.connection.connection import Connection
from leveret.session.settings import Peer, SessionSettings, Tokens

#: Connections that the kernel may hold for us before they are accepted.
BACKLOG = 1024


class AmqpListener(Accepting):
    """Accepts connections on one address."""

    def __init__(
        self,
        runner: Runner,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        tokens: Tokens,
        admission: Admission,
        log: Log,
        say: Callable[[str, str], None],
    ) -> None:
        """`log` takes what a connection has to tell, `say` what there is to tell of the socket."""
        super().__init__(runner, admission, log)
        self._say = say
        self._broker = broker
        self._settings = settings
        self._authenticator = authenticator
        self._tokens = tokens
        self._acceptors: list[Acceptor] = []

    def connect(self, peer: Peer) -> Connection:
        """Return the session of a new connection."""
        return Connection(
            self._broker,
            self._settings,
            self._authenticator,
            self._tokens,
            peer,
            self.runner.now(),
        )

    def make(self, network: str) -> tuple[asyncio.BaseProtocol, Slot]:
        """Return the protocol of a new connection, and its slot."""
        protocol = AmqpProtocol(self, network)
        return protocol, protocol.slot

    def expelled(self, connection: Connection) -> None:
        """Hear that a connection goes that has not logged in, to make room for another one."""
        self.log("warning", connection, "too many connections: closing one that has not logged in")

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which is the kernel's choice where `port` is 0.

        Raises: OSError.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with contextlib.ExitStack() as opened:
            sockets = []
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = opened.enter_context(socket.socket(family, kind, protocol))
                _bind(sock, (address[0], port, *address[2:]))
                # The kernel's choice for the first address holds for the others too.
                port = int(sock.getsockname()[1])
                sockets.append(sock)
            opened.pop_all()
        for sock in sockets:
            self._acceptors.append(Acceptor(sock, self.admission, self.make, self._say))
        return port

    def stop(self) -> None:
        """Accept no more connections."""
        for acceptor in self._acceptors:
            acceptor.close()


def _bind(sock: socket.socket, address: tuple[object, ...]) -> None:
    """Have a socket listen.  Raises: OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen(BACKLOG)
