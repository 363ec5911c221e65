"""The interface of client sockets to the runner of effects."""

from __future__ import annotations

from abc import ABC, abstractmethod

from leveret.session.client_session import ClientSession


class ClientSocket(ABC):
    """A session and the socket that its output is written to."""

    @property
    @abstractmethod
    def connection(self) -> ClientSession:
        """The session, once the socket is open."""

    @abstractmethod
    def tick(self, now_ms: int) -> None:
        """Check time limits (monotonic ms); called about once a second."""

    @abstractmethod
    def flush(self) -> None:
        """Write the session's output to the socket, as long as the peer reads."""

    @abstractmethod
    def abort(self) -> None:
        """Close the socket at once, and discard unsent output."""
