"""The socket of one client, as the runner of effects knows it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from leveret.session.client_session import ClientSession


class ClientSocket(ABC):
    """A connection's session and the socket that its output goes to."""

    @property
    @abstractmethod
    def connection(self) -> ClientSession:
        """The session, once the socket is open."""

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Check time limits (monotonic ms); called about once a second."""

    @abstractmethod
    def flush(self) -> None:
        """Write the core's output for the peer, while the peer reads."""

    @abstractmethod
    def abort(self) -> None:
        """Drop the socket without waiting for unsent output."""
