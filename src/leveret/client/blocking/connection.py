"""A connection of the blocking shell: `connect`, open, close, its channels, and `process`.

Callbacks run in `process` only, never inside another call.
"""

from __future__ import annotations

import ssl as ssl_module
import time
from typing import TYPE_CHECKING, Self

from leveret.client.blocking.calls import Call
from leveret.client.blocking.channel import Channel
from leveret.client.blocking.link import open_link
from leveret.client.blocking.socket_connection import SocketConnection
from leveret.client.shell import requests
from leveret.client.shell.connection import prepare

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.uri import Parameters


def connect(
    uri: str | Parameters = "amqp://",
    *,
    ssl: ssl_module.SSLContext | None = None,
    connection_name: str = "",
    client_properties: Mapping[str, object] | None = None,
) -> Connection:
    """Connect, log in and open the vhost.

    `amqps://` verifies the broker's certificate unless `ssl` says otherwise.

    Raises: ValueError for the URI; OSError, TimeoutError or ConnectionLost when nobody answers as
    a broker; AccessRefusedHard (403) or NotAllowed (530) when the broker refuses.
    """
    parameters, ssl, properties = prepare(uri, ssl, connection_name, client_properties)
    deadline = time.monotonic() + parameters.connection_timeout_ms / 1000
    connection = Connection(parameters, properties, open_link(parameters, ssl, deadline))
    connection.open(deadline)
    return connection


class Connection(SocketConnection):
    """One connection; made by `connect`, used by one thread at a time.

    Raises: ConnectionInUse by every call that finds another thread in a call of this connection.
    """

    # -- opening and closing -----------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Wait for the handshake; called once, by `connect`.  Raises: as `connect`."""
        try:
            if not self.run_until(lambda: self._opened or self._ended, deadline):
                raise TimeoutError("the broker did not finish the handshake in time")
            self.session.check_open()
        except BaseException:
            self._link.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, code: int = 200, text: str = "") -> None:
        """Close the connection, with all its channels; does nothing when it has ended."""
        with self.one_thread:
            if self._ended:
                return
            self.session.close(code, text)
            deadline = time.monotonic() + self.parameters.connection_timeout_ms / 1000
            if not self.run_until(lambda: self._ended, deadline):
                self._handle(self.session.lost("the broker did not answer the close"))

    def abort(self) -> None:
        """End the connection without asking the broker; does nothing when it has ended."""
        with self.one_thread:
            if not self._ended:
                self._handle(self.session.lost("this side hung up"))

    # -- what the application asks for -------------------------------------------------------------

    def channel(self) -> Channel:
        """Open a channel.  Raises: the connection's error; NoFreeChannel."""
        with self.one_thread:
            channel = Channel(self)
            opening: Call[None] = Call(lambda _: None)
            channel.session = self.session.open_channel(channel, opening)
            self.run_until(lambda: opening.done)
            opening.result()
            return channel

    def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Hand the broker a fresh token.  Raises: NotAllowed (530)."""
        with self.one_thread:
            request = requests.update_secret(new_secret, reason)
            call = Call(request.result)
            self.session.request(request.method, call)
            self.run_until(lambda: call.done)
            call.result()

    def process(self, timeout: float | None = 0.0) -> int:
        """Read what has come and give messages to their callbacks; return how many.

        If there is none, wait for one up to `timeout` seconds (None: for ever).

        Raises: ConsumerCancelled or the channel's error, once, for a consumer with a callback that
        has ended; the connection's error; what a callback raises.
        """
        with self.one_thread:
            deadline = None if timeout is None else time.monotonic() + timeout
            self.flush()
            self.read_what_came()
            count = self._run_callbacks()
            while count == 0:
                if self.failures:
                    raise self.failures.popleft()
                self.session.check_open()
                if deadline is not None and time.monotonic() >= deadline:
                    break
                self.turn(deadline)
                count = self._run_callbacks()
            return count

    def _run_callbacks(self) -> int:
        """Give each message that waits to its callback, in the order in which they came."""
        count = 0
        while self.ready:
            count += self.ready.popleft()()
        return count
