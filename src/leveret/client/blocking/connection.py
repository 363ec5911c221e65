"""A connection of the blocking shell: the sans-IO session over a socket read by the calling thread.

Whatever a call waits for, everything that comes is taken in order: messages go to their consumers'
buffers, confirms to their publishes.  Callbacks run in `process` only, never inside another call.

Invariants: while output waits for a broker that does not read, input is still read, so that two
sides that both only write cannot lock each other up; heartbeats are kept in every wait.
"""

from __future__ import annotations

import ssl as ssl_module
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from leveret.client import requests
from leveret.client.blocking.calls import Call
from leveret.client.blocking.channel import Channel
from leveret.client.blocking.link import Link, open_link
from leveret.client.blocking.one_thread import OneThread
from leveret.client.errors import Closed, InputFull
from leveret.client.shell_connection import ShellConnection, monotonic_ms, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leveret.client.blocking.consumer import Consumer
    from leveret.client.events import Ended, Event
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


class Connection(ShellConnection):
    """One connection; made by `connect`, used by one thread at a time.

    Raises: ConnectionInUse by every call that finds another thread in a call of this connection.
    """

    def __init__(
        self, parameters: Parameters, properties: Mapping[str, object], link: Link
    ) -> None:
        super().__init__(parameters, properties)
        self.one_thread = OneThread()
        #: Consumers with a callback, once for each message that waits for it.
        self.ready: deque[Consumer] = deque()
        #: What ended consumers with a callback, until `process` raises it.
        self.failures: deque[Exception] = deque()
        self._link = link
        self._unsent = memoryview(b"")
        self._opened = False
        self._ended = False

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
            consumer = self.ready.popleft()
            message = consumer.pop()
            if message is not None and consumer.callback is not None:
                count += 1
                consumer.callback(message)
        return count

    # -- moving bytes ------------------------------------------------------------------------------

    def run_until(self, done: Callable[[], bool], deadline: float | None = None) -> bool:
        """Send and read until `done` says so; False when it does not before `deadline`.

        What ends the connection ends what `done` waits for, as an event.
        """
        with self.one_thread:
            while not done():
                if self._ended:
                    return done()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self.turn(deadline)
            return True

    def turn(self, deadline: float | None) -> None:
        """Send and read once, waiting until `deadline` at most if nothing comes."""
        with self.one_thread:
            if self._ended:
                self.session.check_open()
            self._send()
            if not self._receive():
                self._link.wait(len(self._unsent) > 0, self._patience(deadline))
            self._tick_if_due()

    def flush(self) -> None:
        """Send everything that was written, reading meanwhile if the broker does not."""
        with self.one_thread:
            self._send()
            while self._unsent and not self._ended:
                if not self._receive():
                    self._link.wait(True, self._patience(None))
                self._tick_if_due()
                self._send()

    def read_what_came(self) -> None:
        """Take what has come, without waiting."""
        with self.one_thread:
            if not self._ended:
                self._receive()
                self._tick_if_due()

    def _send(self) -> None:
        """Send what goes out at once."""
        try:
            while True:
                if not self._unsent:
                    self._unsent = memoryview(self.session.data_to_send())
                    if not self._unsent:
                        return
                self._unsent = self._unsent[self._link.send(self._unsent) :]
                if self._unsent:
                    return
        except OSError as error:
            self._unsent = memoryview(b"")
            self._drain(f"the socket failed: {error}")

    def _drain(self, reason: str) -> None:
        """Read what came before the socket failed: it may say why the broker closed."""
        try:
            while not self._ended and (data := self._link.receive()):
                self._handle(self.session.receive(data))
        except OSError:
            pass
        self._handle(self.session.lost(reason))

    def _receive(self) -> bool:
        """Read once; False when nothing has come."""
        if self._ended:
            return True
        try:
            data = self._link.receive()
        except OSError as error:
            self._handle(self.session.lost(f"the socket failed: {error}"))
            return True
        if data is None:
            return False
        if data:
            self._handle(self.session.receive(data))
        else:
            self._handle(self.session.lost("the broker hung up"))
        return True

    def _patience(self, deadline: float | None) -> float | None:
        """Return how many seconds to wait: until `deadline` or the next tick."""
        due_ms = self.session.next_tick_ms()
        waits = [] if deadline is None else [deadline - time.monotonic()]
        if due_ms is not None:
            waits.append((due_ms - monotonic_ms()) / 1000)
        return max(0.0, min(waits)) if waits else None

    def _tick_if_due(self) -> None:
        """Tell the session the time when it wants to know it."""
        due_ms = self.session.next_tick_ms()
        if due_ms is None or self._ended:
            return
        now_ms = monotonic_ms()
        if now_ms >= due_ms:
            # The thread may have been elsewhere for long: look first at what came meanwhile.
            self._receive()
            self._handle(self.session.tick(now_ms))

    # -- events ------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        """Give the events to whom they concern; end the connection when too much waits."""
        super()._handle(events)
        if self._is_overfull and not self._ended:
            text = f"{self._input_bytes} bytes of messages wait; limit them by channel.qos()"
            self._handle(self.session.abort(InputFull(text)))

    def _on_opened(self) -> None:
        """Note that the handshake is done."""
        self._opened = True

    def _on_unblocked(self) -> None:
        """Nothing: who publishes looks at `blocked_reason`."""

    def _on_ended(self, event: Ended) -> None:
        """Take the end of the connection: what waits hears of it and the socket closes."""
        error = event.error or Closed("the connection was closed")
        for token in event.tokens:
            token.end(error)
        self._send()
        self._ended = True
        self._unsent = memoryview(b"")
        self._link.close()
