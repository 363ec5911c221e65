"""Listeners, which accept the connections of a protocol and create their sessions."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.server.acceptor import Acceptor
from leveret.server.amqp import ClientProtocol, Log
from leveret.server.opening.opening import Open
from leveret.server.runner import Runner
from leveret.session.admission import Admission, Slot
from leveret.session.authentication import Authenticator
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import AmqpConnection
from leveret.session.settings import Peer, SessionSettings, Tokens

#: Connections that the kernel may queue before they are accepted.
BACKLOG = 1024


class Listener(ABC):
    """Accepts connections on one address; `connect` creates their sessions.

    `speaks` is the protocol's name in the log.
    """

    def __init__(
        self,
        runner: Runner,
        admission: Admission,
        log: Log,
        say: Callable[[str, str], None],
        speaks: str,
    ) -> None:
        """`log` logs lines about connections, and `say` lines about the listening sockets."""
        self.runner = runner
        self.admission = admission
        self.log = log
        self.speaks = speaks
        self._say = say
        self._acceptors: list[Acceptor] = []

    def make(self, network: str) -> tuple[asyncio.Protocol, Slot]:
        """Return the protocol of a new connection, and its slot."""
        protocol = ClientProtocol(self, network)
        return protocol, protocol.slot

    @abstractmethod
    def connect(self, peer: Peer) -> ClientSession:
        """Return the session of a new connection."""

    def opening_ms(self) -> int:
        """Return the time limit for a client to log in (ms), or 0 for no limit."""
        return 0

    def expelled(self, connection: ClientSession) -> None:
        """Log that a connection that has not logged in is closed to make room for another."""
        self.log("warning", connection, "too many connections: closing one that has not logged in")

    async def start(self, host: str, port: int, opening: Open | None = None) -> int:
        """Listen, and return the port; if `port` is 0, the kernel chooses it.

        `opening` puts another protocol, such as TLS, before that of each connection.

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
                # All addresses share the port that the kernel chose for the first.
                port = int(sock.getsockname()[1])
                sockets.append(sock)
            opened.pop_all()
        for sock in sockets:
            acceptor = Acceptor(sock, self.admission, self.make, self._say, opening=opening)
            self._acceptors.append(acceptor)
        return port

    def stop(self) -> None:
        """Accept no more connections."""
        for acceptor in self._acceptors:
            acceptor.close()


class AmqpListener(Listener):
    """Accepts AMQP connections on one address."""

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
        super().__init__(runner, admission, log, say, "AMQP")
        self._broker = broker
        #: The settings of new connections; replaced on reload.
        self.settings = settings
        self._authenticator = authenticator
        self._tokens = tokens

    def connect(self, peer: Peer) -> ClientSession:
        """Return the session of a new connection."""
        return AmqpConnection(
            self._broker,
            self.settings,
            self._authenticator,
            self._tokens,
            peer,
            self.runner.now(),
        )

    def opening_ms(self) -> int:
        """Return the time limit for a client to log in (ms)."""
        return int(self.settings.handshake_ms)


def _bind(sock: socket.socket, address: tuple[object, ...]) -> None:
    """Bind a socket and listen.  Raises: OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen(BACKLOG)
