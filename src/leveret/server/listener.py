"""A listener: the socket that accepts AMQP connections and what their sessions are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leveret.broker.broker import Broker
from leveret.server.amqp import AmqpProtocol
from leveret.server.runner import Runner
from leveret.session.connection import Connection
from leveret.session.settings import Authenticator, Peer, SessionSettings, Tokens

#: Connections that the kernel may hold for us before they are accepted.
BACKLOG = 1024

Log = Callable[[str, Connection, str], None]


class AmqpListener:
    """Accepts connections on one address."""

    def __init__(
        self,
        runner: Runner,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        tokens: Tokens,
        log: Log,
    ) -> None:
        self.runner = runner
        self.log = log
        self._broker = broker
        self._settings = settings
        self._authenticator = authenticator
        self._tokens = tokens
        self._server: asyncio.Server | None = None

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

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which is the kernel's choice where `port` is 0."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: AmqpProtocol(self), host, port, backlog=BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
