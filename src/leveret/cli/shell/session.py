"""The state of a shell: its connection to the broker, and requests to the broker's API.

Each command has its own channel, so that a refused command does not affect others.  The connection
has no heartbeats, because nothing serves it while the prompt waits.  Before each command, the shell
checks the connection, and reports and replaces a lost one.  If the connection is lost during a
command, the command fails, because the broker may or may not have executed it.

Listings and names come from the broker's API, over its Unix socket for a connection to this
machine, or from the address that a context or an option names.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Literal, Self

from leveret.cli import exits
from leveret.cli.connecting import failures
from leveret.cli.ctl.asking import BrokerAddress
from leveret.cli.place import BrokerOptions, is_local
from leveret.cli.printing import output
from leveret.client.errors import ClientError, ConnectionLost
from leveret.errors import AmqpError

if TYPE_CHECKING:
    from leveret.client.blocking import Channel, Connection
    from leveret.client.uri import Parameters

#: The paths of the API that list queues and exchanges.
_LISTED: Final = {"queue": "queues", "exchange": "exchanges"}


class ShellState:
    """The shared state of one shell's commands."""

    def __init__(self, parameters: Parameters, data_dir: Path | None, config: Path | None) -> None:
        self.parameters: Final = replace(parameters, heartbeat_seconds=0)
        self.target: Final = BrokerAddress(BrokerOptions(data_dir, config), beside_uri=True)
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
        """The host and the port of the broker."""
        return f"{self.parameters.host}:{self.parameters.port}"

    # -- the connection ----------------------------------------------------------------------------

    def connect(self) -> Connection:
        """Return the open connection, or a new one if there is none.  Raises: Failure."""
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
        """Yield a channel, and close it at the end.  Raises: Failure."""
        connection = self.connect()
        with failures():
            try:
                with connection.channel() as channel:
                    yield channel
            except ConnectionLost as error:
                text = f"{error}; the broker may or may not have done this"
                raise exits.Failure(text, exits.UNAVAILABLE) from None

    def abandon(self) -> None:
        """Abort the connection after a command was interrupted in a call."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ClientError, AmqpError, OSError):
                connection.abort()

    # -- Ctrl-C ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stoppable(self) -> Iterator[None]:
        """At a prompt, make Ctrl-C set `stopped` instead of raising KeyboardInterrupt."""
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

    def api_target(self) -> BrokerAddress:
        """Return the target for requests to the broker's API.

        Raises: Failure if the broker is on another machine and no context or address names its API.
        """
        is_socket = isinstance(self.target.place.find_api_beside_uri(), Path)
        if is_socket and not is_local(self.parameters.host):
            text = f"this needs the broker's API, but {self.address} is on another machine"
            raise exits.Failure(f"{text}; name its API with --api or --context", exits.UNAVAILABLE)
        return self.target

    def names(self, kind: Literal["queue", "exchange"]) -> list[str]:
        """Return the names of the vhost's queues or exchanges, or [] if the API does not answer."""
        try:
            found = self.api_target().ask("GET", _LISTED[kind], self.parameters.vhost)
        except (exits.Failure, ValueError):
            return []
        rows = found if isinstance(found, list) else []
        names = [row.get("name") for row in rows if isinstance(row, dict)]
        return [name for name in names if isinstance(name, str) and name]


def _lost(connection: Connection) -> str | None:
    """Return the reason for the loss of a connection, or None if it is open."""
    try:
        connection.process(0)
    except (ClientError, AmqpError, OSError) as error:
        return str(error) or type(error).__name__
    return None
