"""A session over a socket that is read and written by the calling thread.

Whatever a call waits for, everything that comes is taken in order: messages go to their consumers'
buffers, confirms to their publishes.

Not here: what an application asks of its connection (`connection`).

Invariants: while output waits for a broker that does not read, input is still read, so that two
sides that both only write cannot lock each other up; heartbeats are kept in every wait.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from leveret.client.blocking.one_thread import OneThread
from leveret.client.errors import Closed, InputFull
from leveret.client.shell.connection import ShellConnection, monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leveret.client.blocking.link import Link
    from leveret.client.events import Ended, Event
    from leveret.client.uri import Parameters


class SocketConnection(ShellConnection):
    """What is sent and read of a connection, by one thread at a time."""

    def __init__(
        self, parameters: Parameters, properties: Mapping[str, object], link: Link
    ) -> None:
        super().__init__(parameters, properties)
        self.one_thread = OneThread()
        #: Calls of consumers' callbacks, one for each message that waits; False when it was gone.
        self.ready: deque[Callable[[], bool]] = deque()
        #: What ended consumers with a callback, until `process` raises it.
        self.failures: deque[Exception] = deque()
        self._link = link
        self._unsent = memoryview(b"")
        self._opened = False
        self._ended = False

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
