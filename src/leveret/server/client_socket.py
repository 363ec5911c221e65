"""The socket of one AMQP connection, as the runner of effects knows it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from leveret.session.connection.connection import Connection


class ClientSocket(ABC):
    """A connection's session and the socket that its output goes to."""

    connection: Connection

    @abstractmethod
    def flush(self) -> None:
        """Write what the core has for the peer, while the peer reads."""

    @abstractmethod
    def abort(self) -> None:
        """Drop the socket without waiting for what was not sent."""
