"""A connection of the blocking shell: a session over a socket, used by the calling thread.

A call returns when it is done.  Whatever it waits for, everything that comes is taken in order:
messages go to their consumers' buffers, confirms to their publishes.  Callbacks run in
`Connection.process` only, never inside another call.

Invariants: while output waits for a broker that does not read, input is still read, so that two
sides that both only write cannot lock each other up; heartbeats are kept in every wait.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Self, Unpack

from leveret.client.blocking.calls import Call
from leveret.client.blocking.channel import Channel, TracedChannel
from leveret.client.blocking.link import Link, open_link
from leveret.client.blocking.one_thread import OneThread
from leveret.client.errors import Closed, InputFull
from leveret.client.options import shows_options
from leveret.client.shell import requests
from leveret.client.shell.connection import UNANSWERED, Prepared, ShellConnection, monotonic_ms
from leveret.limits import CLIENT_ACK_DELAY_NS, CLIENT_UNCONFIRMED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.addresses import Address
    from leveret.client.events import Ended, Event, Token
    from leveret.client.options import ConnectOptions
    from leveret.client.session.acks import Acks
    from leveret.client.uri import Parameters


@shows_options
def connect(uri: Address = None, **options: Unpack[ConnectOptions]) -> Connection:
    """Connect, log in and open the vhost.

    `uri` is one URI or several, as a list or separated by commas: they are tried in turn.  Each
    keyword argument stands for a part of it.  `amqps://` and `tls=True` verify the broker's
    certificate unless `ssl` says otherwise.  A lost connection is opened again, and everything on
    it done again, unless `recover` is False; a `Recovery` sets the limits and says who hears of it.

    Raises: ValueError or TypeError for arguments that cannot be, or where the URI and a keyword
    argument differ; OSError, TimeoutError or ConnectionLost when nobody answers as a broker, or
    Unreachable when no address of several does; CertificateRefused or TlsFailed;
    AccessRefusedHard (403) or NotAllowed (530) when the broker refuses.
    """
    prepared = Prepared(uri, options)
    for parameters in prepared.addresses:
        deadline = time.monotonic() + parameters.connection_timeout_ms / 1000
        connection = Connection(parameters, prepared)
        try:
            connection.open(deadline)
        except UNANSWERED as error:
            prepared.failed(parameters, error)
        else:
            return connection
    raise AssertionError("the last failure is raised")


class Connection(ShellConnection):
    """One connection; made by `connect`, used by one thread at a time.

    Raises: ConnectionInUse by every call that finds another thread in a call of this connection.
    """

    def __init__(self, parameters: Parameters, prepared: Prepared) -> None:
        super().__init__(parameters, prepared)
        self.one_thread = OneThread()
        #: Calls of consumers' callbacks, one for each message that waits; False when it was gone.
        self.ready: deque[Callable[[], bool]] = deque()
        #: What ended consumers with a callback, until `process` raises it.
        self.failures: deque[Exception] = deque()
        self._link: Link | None = None
        #: While the connection is recovered: when the next attempt begins (ms), or None while one
        #: is under way, and until when (monotonic seconds) that may take.
        self._attempt_at_ms: int | None = None
        self._attempt_until = 0.0
        self._unsent = memoryview(b"")
        #: Whether acks were gathered that nothing will send but the next call, and when something
        #: was sent last.
        self.acks_wait = False
        self._sent_ns = 0
        #: Whether publishes may go out, as nothing has changed since that was looked at.
        self.is_calm = False
        self._opened = False
        self._ended = False

    # -- opening and closing -----------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Wait for the handshake; called once, by `connect`.  Raises: as `connect`."""
        try:
            self.dial(deadline)
            if not self.run_until(lambda: self._opened or self._ended, deadline):
                raise TimeoutError("the broker did not finish the handshake in time")
            self.session.check_open()
        except BaseException:
            self.drop_link()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, code: int = 200, text: str = "") -> None:
        """Close the connection, with all its channels; does nothing when it has ended."""
        with self.one_thread:
            self.stop_recovering()
            if self._ended:
                return
            self.session.close(code, text)
            deadline = time.monotonic() + self.parameters.connection_timeout_ms / 1000
            if not self.run_until(lambda: self._ended, deadline):
                self._handle(self.session.lost("the broker did not answer the close"))

    def abort(self) -> None:
        """End the connection without asking the broker; does nothing when it has ended."""
        with self.one_thread:
            self.stop_recovering()
            if not self._ended:
                self._handle(self.session.lost("this side hung up"))

    # -- what the application asks for -------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels that are open on this connection."""
        owners = [one.owner for one in self.session.channels.values()]
        return tuple(owner for owner in owners if isinstance(owner, Channel))

    def channel(self) -> Channel:
        """Open a channel.  Raises: the connection's error; NoFreeChannel."""
        with self.one_thread:
            self.wait_until_recovered()
            opening: Call[None] = Call(lambda _: None)
            channel = self._made_channel(opening)
            self.run_until(lambda: opening.done)
            opening.result()
            return channel

    def _made_channel(self, opening: Token) -> Channel:
        """Return a new channel, which is traced if the connection is."""
        traces = self._prepared.traces
        return Channel(self, opening) if traces is None else TracedChannel(self, opening, traces)

    def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Hand the broker a fresh token.  Raises: NotAllowed (530)."""
        with self.one_thread:
            request = requests.update_secret(new_secret, reason)
            call = Call(request.result)
            self.session.request(request.method, call)
            self.run_until(lambda: call.done)
            call.result()
            self._secret_updated(new_secret)

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
                if not self.is_recovering:
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
            if self.acks_wait:
                self.send_old_acks()
        if self.acks_wait:
            self.flush()
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
            if self._is_attempting and not self._attempt(deadline):
                return
            self._send()
            if not self._receive() and self._link is not None:
                self._link.wait(len(self._unsent) > 0, self._patience(deadline))
            self._tick_if_due()

    def flush(self) -> None:
        """Send everything that was written, reading meanwhile if the broker does not."""
        with self.one_thread:
            self._send()
            while self._unsent and not self._ended:
                if not self._receive() and self._link is not None:
                    self._link.wait(True, self._patience(None))
                self._tick_if_due()
                self._send()

    def acked(self, acks: Acks) -> None:
        """Send an ack now, or a little later with others.

        It waits only while acks come fast and more messages wait to be handed out, so that the
        application calls again soon.
        """
        if acks.is_newest or time.monotonic_ns() - self._sent_ns > CLIENT_ACK_DELAY_NS:
            self.flush()
        else:
            self.acks_wait = True

    def send_old_acks(self) -> None:
        """Send the acks that wait if that is long enough."""
        if time.monotonic_ns() - self._sent_ns > CLIENT_ACK_DELAY_NS:
            self.flush()

    def read_what_came(self) -> None:
        """Take what has come, without waiting."""
        with self.one_thread:
            if not self._ended:
                self._receive()
                self._tick_if_due()

    def _send(self) -> None:
        """Send what goes out at once."""
        if self._link is None:
            return
        self.acks_wait = False
        self._sent_ns = time.monotonic_ns()
        try:
            while True:
                if not self._unsent:
                    self._unsent = memoryview(self.session.data_to_send())
                    if not self._unsent:
                        return
                    self.is_calm = False
                self._unsent = self._unsent[self._link.send(self._unsent) :]
                if self._unsent:
                    return
        except OSError as error:
            self._unsent = memoryview(b"")
            self._drain(f"the socket failed: {error}")

    def _drain(self, reason: str) -> None:
        """Read what came before the socket failed: it may say why the broker closed."""
        try:
            while self._link is not None and (data := self._link.receive()):
                self._handle(self.session.receive(data))
        except OSError:
            pass
        self._handle(self.session.lost(reason))

    def _receive(self) -> bool:
        """Read once; False when nothing has come."""
        if self._link is None:
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
        due_ms = self._due_ms()
        waits = [] if deadline is None else [deadline - time.monotonic()]
        if self._is_attempting:
            waits.append(self._attempt_until - time.monotonic())
        if due_ms is not None:
            waits.append((due_ms - monotonic_ms()) / 1000)
        return max(0.0, min(waits)) if waits else None

    def _tick_if_due(self) -> None:
        """Tell the session the time when it wants to know it."""
        due_ms = self._due_ms()
        if due_ms is None or self._link is None:
            return
        now_ms = monotonic_ms()
        if now_ms >= due_ms:
            # The thread may have been elsewhere for long: look first at what came meanwhile.
            self._receive()
            self._handle_tick(now_ms, reading=True)

    # -- events ------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        """Give the events to whom they concern; end the connection when too much waits."""
        self.is_calm = False
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
        self.drop_link()

    # -- opening a socket, the first time and again ------------------------------------------------

    def dial(self, deadline: float) -> None:
        """Open a socket to the target of the session, until `deadline`.  Raises: OSError."""
        target = self.session.parameters
        self._link = open_link(target, self._prepared.ssl(target), deadline)

    def drop_link(self) -> None:
        """Close the socket."""
        link, self._link = self._link, None
        self._unsent = memoryview(b"")
        if link is not None:
            link.close()

    @property
    def has_room(self) -> bool:
        """Whether more publishes may be kept until they are confirmed."""
        memory = self.session.memory
        return memory is None or memory.kept.size <= CLIENT_UNCONFIRMED_BYTES_MAX

    def wait_until_recovered(self) -> None:
        """Wait while the connection is lost."""
        if self._is_attempting:
            self.run_until(lambda: not self._is_attempting)

    def stop_recovering(self) -> None:
        """Recover no more; a recovery that is under way ends the connection."""
        if self.recoverer is None:
            return
        self.recoverer.stop()
        if self._is_attempting:
            self._abandon_attempt()
            self._give_up(None)

    def _attempt(self, deadline: float | None) -> bool:
        """Go on with an attempt to recover; False when there is nothing to read yet.

        It waits for its time up to `deadline`; an attempt that has begun opens its socket in the
        time that a connection may take.
        """
        assert self.recoverer is not None
        if self._attempt_at_ms is None:
            if time.monotonic() < self._attempt_until:
                return True
            self._attempt_failed(TimeoutError("the broker did not answer in time"))
            return False
        wait = self._attempt_at_ms / 1000 - time.monotonic()
        if deadline is not None:
            wait = min(wait, deadline - time.monotonic())
        if wait > 0:
            time.sleep(wait)
        if monotonic_ms() < self._attempt_at_ms:
            return False
        self._attempt_at_ms = None
        self._on_progress()
        self.session = self.recoverer.begin(monotonic_ms())
        try:
            self.dial(self._attempt_until)
        except OSError as error:
            self._attempt_failed(error)
            return False
        except BaseException:
            # As by Ctrl-C: who calls again goes on with another attempt.
            self._attempt_failed(ConnectionAbortedError("the attempt was interrupted"))
            raise
        return True

    def _on_progress(self) -> None:
        """Give the broker its time to answer an attempt to recover, from now on."""
        self._attempt_until = time.monotonic() + self.parameters.connection_timeout_ms / 1000

    def _on_lost(self, error: Exception) -> None:
        """Take the loss of the connection, and begin to recover it."""
        self.drop_link()
        self._try_again(error)

    def _try_again(self, error: Exception) -> None:
        """Set the time of the next attempt, or give up."""
        assert self.recoverer is not None
        now_ms = monotonic_ms()
        delay_ms = self.recoverer.next_ms(error, now_ms)
        if delay_ms is None:
            self._give_up(error)
        else:
            self._attempt_at_ms = now_ms + delay_ms

    def _attempt_failed(self, error: Exception) -> None:
        """Take that an attempt to recover has failed."""
        if self._attempt_at_ms is not None or not self._is_attempting:
            return
        self._attempt_at_ms = 0
        self.drop_link()
        self._abandon_attempt()
        self._try_again(error)

    def _on_restored(self, error: Exception | None) -> None:
        """Take that everything was done again on another connection, or could not be."""
        if error is None:
            self._recovered()
        else:
            self._attempt_failed(error)
