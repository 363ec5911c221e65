"""The shell's side of the broker: one connection that is replaced when it is lost, and its names.

Each command has a channel of its own, so that a refused command harms no other.  The connection has
no heartbeats, because nobody serves it while the prompt waits.  Before a command is sent the shell
finds out whether the connection was lost, says so, and replaces it.  A command during which it is
lost fails, because the broker may have done it or not.

Listings and names come from the broker's API: on its Unix socket, if the connection leads to this
machine, or where a context or an address says.
"""

from __future__ import annotations

import contextlib
import ipaddress
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal, Self

from leveret.cli import exits
from leveret.cli.connecting import failures
from leveret.cli.ctl.asking import Target
from leveret.cli.place import Place
from leveret.cli.printing import output
from leveret.client.errors import ClientError, ConnectionLost
from leveret.errors import AmqpError

if TYPE_CHECKING:
    from leveret.client.blocking import Channel, Connection
    from leveret.client.uri import Parameters

#: The fields that names of a kind are listed by.
_LISTED: Final = {"queue": "queues", "exchange": "exchanges"}


class Session:
    """What the commands of one shell share."""

    def __init__(self, parameters: Parameters, data_dir: Path | None, config: Path | None) -> None:
        self.parameters: Final = replace(parameters, heartbeat_seconds=0)
        self.target: Final = Target(Place(data_dir, config), beside_uri=True)
        #: True at a prompt, where Ctrl-C ends a command and not the shell.
        self.interactive = False
        self._connection: Connection | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            with contextlib.suppress(ClientError, AmqpError, OSError):
                self._connection.close()

    @property
    def address(self) -> str:
        """Where the shell is connected, without the user."""
        return f"{self.parameters.host}:{self.parameters.port}"

    # -- the connection ----------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return the connection, a new one if there is none or if it was lost.  Raises: Failure."""
        if self._connection is not None:
            reason = _lost(self._connection)
            if reason is None:
                return self._connection
            self._connection = None
            output.say(f"leveret: the connection was lost: {reason}", err=True)
            self._connection = self._connected()
            output.say(f"leveret: connected again to {self.address}", err=True)
            return self._connection
        self._connection = self._connected()
        return self._connection

    def _connected(self) -> Connection:
        """Return a new connection.  Raises: Failure."""
        from leveret.cli.connecting import open_connection

        return open_connection(self.parameters, "leveret shell")

    @contextlib.contextmanager
    def channel(self) -> Iterator[Channel]:
        """Give a channel that is closed at the end.  Raises: Failure."""
        connection = self.connect()
        with failures():
            try:
                with connection.channel() as channel:
                    yield channel
            except ConnectionLost as error:
                text = f"{error}; the broker may have done this or not"
                raise exits.Failure(text, exits.UNAVAILABLE) from None

    def abandon(self) -> None:
        """End the connection at once, because a command was interrupted inside of a call."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ClientError, AmqpError, OSError):
                connection.abort()

    # -- Ctrl-C ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stoppable(self) -> Iterator[None]:
        """Make Ctrl-C set `stopped` instead of interrupting; without a prompt it ends the shell."""
        self._stopped = False
        if not self.interactive:
            yield
            return

        def stop(_number: int, _frame: FrameType | None) -> None:
            self._stopped = True

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C was pressed since `stoppable` was entered."""
        return self._stopped

    # -- the management API ------------------------------------------------------------------------

    def api_target(self) -> Target:
        """Return what asks the broker's API.

        Raises: Failure if the broker is on another machine and no context or address leads there.
        """
        is_socket = isinstance(self.target.place.find_api_beside_uri(), Path)
        if is_socket and not _is_local(self.parameters.host):
            text = f"this asks the broker's Unix socket, and {self.address} is another machine"
            raise exits.Failure(f"{text}; --api or --context leads there", exits.UNAVAILABLE)
        return self.target

    def names(self, kind: Literal["queue", "exchange"]) -> list[str]:
        """Return the names of the vhost's queues or exchanges, none if the API does not answer."""
        try:
            found = self.api_target().ask("GET", _LISTED[kind], self.parameters.vhost)
        except (exits.Failure, ValueError):
            return []
        rows = found if isinstance(found, list) else []
        names = [row.get("name") for row in rows if isinstance(row, dict)]
        return [name for name in names if isinstance(name, str) and name]


def _lost(connection: Connection) -> str | None:
    """Return why a connection was lost, or None if it is open."""
    try:
        connection.process(0)
    except (ClientError, AmqpError, OSError) as error:
        return str(error) or type(error).__name__
    return None


def _is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
