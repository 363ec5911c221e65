"""A blocking connection: a session over a socket, used by the calling thread.

While a call waits, all input is handled in order: messages are added to their consumers' buffers,
and confirms settle their publishes.  Callbacks run in `Connection.process` only, never inside
another call.

Invariants: input is still read while output waits for a broker that does not read, so that two
sides that only write cannot deadlock; heartbeats are sent during every wait.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self, Unpack

from leveret.client.blocking.calls import Call
from leveret.client.blocking.channel import Channel, TracedChannel
from leveret.client.blocking.link import SocketLink, open_link
from leveret.client.blocking.one_thread import OneThread
from leveret.client.blocking.rpc import Requester
from leveret.client.options import PublishArguments, shows_options
from leveret.client.shell import requests
from leveret.client.shell.connection import UNANSWERED, Prepared, ShellConnection, monotonic_ms
from leveret.client.shell.rpc import REPLY_SECONDS
from leveret.limits import CLIENT_UNCONFIRMED_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.client.acks import Acks
    from leveret.client.addresses import Address
    from leveret.client.blocking.calls import Waiting
    from leveret.client.events import Event
    from leveret.client.message import Message
    from leveret.client.options import ConnectOptions
    from leveret.client.shell.channel import Body
    from leveret.client.uri import Parameters

#: How long after the last output an ack may wait for others, while more messages of its channel are
#: buffered.  Sending each ack alone costs more than all other work for a message.
CLIENT_ACK_DELAY_NS: Final = 1_000_000


@shows_options()
def connect(uri: Address = None, **options: Unpack[ConnectOptions]) -> Connection:
    """Connect, log in and open the vhost.

    `uri` is one URI or several, as a list or separated by commas; they are tried in order.  Each
    keyword argument sets one part of the URI; `timeout` and `heartbeat` are in seconds.  `amqps://`
    and `tls=True` verify the broker's certificate unless `ssl` says otherwise.  A lost connection
    is reopened and everything on it is restored, unless `recover` is False; a `Recovery` sets the
    limits and the callbacks.

    Raises: ValueError or TypeError for invalid arguments, or when the URI and a keyword argument
    contradict each other; OSError, TimeoutError or ConnectionLost when no broker answers, or
    Unreachable when none of several addresses does; CertificateRefused or TlsFailed;
    AccessRefusedHard (403) or NotAllowed (530) when the broker refuses the login.
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
    """One connection; created by `connect`, used by one thread at a time.

    `with` closes it.  It has no thread of its own: it sends heartbeats and reads messages only
    inside its calls.  A program that is busy elsewhere calls `process` from time to time.

    Raises: ConnectionInUse from every call that overlaps with a call of another thread.
    """

    def __init__(self, parameters: Parameters, prepared: Prepared) -> None:
        super().__init__(parameters, prepared)
        self.one_thread = OneThread()
        self._requester = Requester(self)
        #: Pending calls of consumers' callbacks, one per message; a call returns False if its
        #: message is gone.
        self.ready: deque[Callable[[], bool]] = deque()
        #: Errors that ended consumers with a callback, until `process` raises them.
        self.failures: deque[Exception] = deque()
        self._link: SocketLink | None = None
        #: During recovery: the time of the next attempt (ms), or None during an attempt; and the
        #: deadline of the current attempt (monotonic seconds).
        self._attempt_at_ms: int | None = None
        self._attempt_until = 0.0
        self._unsent = memoryview(b"")
        #: Whether buffered acks wait for the next call that sends, and the time of the last send.
        self.acks_wait = False
        self._sent_ns = 0
        #: Cached: publishes may be sent.  False means unknown.
        self.is_calm = False
        self._opened = False
        self._ended = False

    # -- opening and closing -----------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Connect and wait for the handshake; called once, by `connect`.  Raises: as `connect`."""
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
        """Close the connection and all its channels, with a reason; do nothing if it has ended."""
        with self.one_thread:
            self.stop_recovering()
            if self._ended:
                return
            self.session.close(code, text)
            deadline = time.monotonic() + self.parameters.connection_timeout_ms / 1000
            if not self.run_until(lambda: self._ended, deadline):
                self._handle(self.session.lost("the broker did not answer the close"))

    def abort(self) -> None:
        """End the connection without a close handshake; do nothing if it has ended."""
        with self.one_thread:
            self.stop_recovering()
            if not self._ended:
                self._handle(self.session.lost("this side hung up"))

    # -- requests of the application ---------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The open channels of this connection."""
        owners = [one.owner for one in self.session.channels.values()]
        return tuple(owner for owner in owners if isinstance(owner, Channel))

    def channel(self) -> Channel:
        """Open a channel.  Raises: the connection's error; NoFreeChannel."""
        with self.one_thread:
            self.wait_until_recovered()
            opening: Call[None] = Call(lambda _: None)
            kind = Channel if self.traces is None else TracedChannel
            channel = kind(self, opening)
            self.wait_for(opening)
            opening.result()
            return channel

    def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Send the broker a new token before the old one expires; later logins use it too.

        Raises: NotAllowed (530) if the broker refuses it, which ends the connection.
        """
        with self.one_thread:
            request = requests.update_secret(new_secret, reason)
            call = Call(request.result)
            self.session.request(request.method, call)
            self.wait_for(call)
            call.result()
            self._secret_updated(new_secret)

    @shows_options(PublishArguments)
    def request(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        *,
        timeout: float | None = REPLY_SECONDS,
        **options: Unpack[PublishArguments],
    ) -> Message:
        """Publish a request and return its reply, a message that needs no ack.

        The service replies with `channel.reply`, or with any client by publishing to `reply_to`
        with the same correlation ID.  The request is transient and expires with `timeout` (seconds;
        None: no limit), which begins when the broker has taken it.  The options are those of
        `publish`, but `request` sets `correlation_id` and `reply_to` itself.

        Raises: Returned if no queue took the request; TimeoutError without a reply in time; Nacked;
        the connection's error; ValueError or TypeError for an invalid argument.
        """
        with self.one_thread:
            return self._requester.request(body, exchange, routing_key, timeout, options)

    def process(self, timeout: float | None = 0.0) -> int:
        """Read available input and call the callbacks of its messages; return the number of calls.

        If there is no message, wait up to `timeout` seconds for one (None: no limit).

        Raises: ConsumerCancelled or the channel's error, once for each consumer with a callback
        that has ended; the connection's error; an error from a callback.
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
        """Call the callbacks of buffered messages, in the order of arrival."""
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
        """Send and read until `done()` is true; return False if `deadline` passes first.

        The end of the connection also resolves the tokens that `done` checks.
        """
        with self.one_thread:
            while not done():
                if self._ended:
                    return done()
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self.turn(deadline)
            return True

    def wait_for(self, waiting: Waiting) -> None:
        """Send and read until a token is resolved, for a caller inside `one_thread`.

        The end of the connection resolves it as well.
        """
        while not (waiting.done or self._ended):
            self.turn(None)

    def turn(self, deadline: float | None) -> None:
        """Send, wait for input at most until `deadline` and read it.

        The caller is inside `one_thread`.
        """
        if self._ended:
            self.session.check_open()
        if self._is_attempting and not self._attempt(deadline):
            return
        self._send()
        due_ms = self._due_ms()
        if self._link is not None:
            # Reading without waiting would usually fail: what was sent is not answered yet.
            self._link.wait(len(self._unsent) > 0, self._patience(deadline, due_ms))
            self._receive()
        if due_ms is not None and monotonic_ms() >= due_ms:
            self._tick_if_due()

    def flush(self) -> None:
        """Send all pending output, such as messages of `publish_nowait`.

        While the broker does not read, the call waits, and reads what comes in.
        """
        with self.one_thread:
            self._send()
            while self._unsent and not self._ended:
                if not self._receive() and self._link is not None:
                    self._link.wait(True, self._patience(None, self._due_ms()))
                self._tick_if_due()
                self._send()

    def acked(self, acks: Acks) -> None:
        """Send an ack now, or together with the next ones.

        An ack is delayed only while acks are frequent and more messages are buffered, since the
        application then calls again soon.
        """
        if acks.is_newest or time.monotonic_ns() - self._sent_ns > CLIENT_ACK_DELAY_NS:
            self.flush()
        else:
            self.acks_wait = True

    def send_old_acks(self) -> None:
        """Send buffered acks that have waited long enough."""
        if time.monotonic_ns() - self._sent_ns > CLIENT_ACK_DELAY_NS:
            self.flush()

    def read_what_came(self) -> None:
        """Handle available input, without waiting; the caller is inside `one_thread`."""
        if not self._ended:
            self._receive()
            self._tick_if_due()

    def _send(self) -> None:
        """Send as much output as the socket accepts."""
        link = self._link
        if link is None:
            return
        self.acks_wait = False
        self._sent_ns = time.monotonic_ns()
        try:
            while self._unsent or self.session.output_bytes:
                if not self._unsent:
                    self._unsent = memoryview(self.session.data_to_send())
                    self.is_calm = False
                self._unsent = self._unsent[link.send(self._unsent) :]
                if self._unsent:
                    return
        except OSError as error:
            self._unsent = memoryview(b"")
            self._drain(f"the socket failed: {error}")

    def _drain(self, reason: str) -> None:
        """Read a failed socket's remaining input, which may contain the broker's close reason."""
        try:
            while self._link is not None and (data := self._link.receive()):
                self._handle(self.session.receive(data))
        except OSError:
            pass
        self._handle(self.session.lost(reason))

    def _receive(self) -> bool:
        """Read once; return False if there was no input."""
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

    def _patience(self, deadline: float | None, due_ms: int | None) -> float | None:
        """Return the seconds until `deadline`, the attempt's deadline or the next tick, or None."""
        if deadline is None and due_ms is not None and not self._is_attempting:
            return max(0.0, due_ms / 1000 - time.monotonic())
        waits = [] if deadline is None else [deadline - time.monotonic()]
        if self._is_attempting:
            waits.append(self._attempt_until - time.monotonic())
        if due_ms is not None:
            waits.append((due_ms - monotonic_ms()) / 1000)
        return max(0.0, min(waits)) if waits else None

    def _tick_if_due(self) -> None:
        """Pass the current time to the session if a tick is due."""
        due_ms = self._due_ms()
        if due_ms is None or self._link is None:
            return
        now_ms = monotonic_ms()
        if now_ms >= due_ms:
            # The thread may have been busy elsewhere for long, so read pending input first.
            self._receive()
            self._handle_tick(now_ms, reading=True)

    # -- events ------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        """Dispatch events; end the connection when too much is buffered."""
        self.is_calm = False
        super()._handle(events)
        if self._is_overfull and not self._ended:
            self._abort_overfull()

    def _on_opened(self) -> None:
        """Record the end of the handshake."""
        self._opened = True

    def _on_unblocked(self) -> None:
        """Do nothing, because publishers check `blocked_reason`."""

    def _on_ended(self, _: Exception) -> None:
        """Send remaining output and close the socket at the end of the connection."""
        self._send()
        self._ended = True
        self.drop_link()

    # -- sockets and recovery ----------------------------------------------------------------------

    def dial(self, deadline: float) -> None:
        """Open a socket to the session's target, before `deadline`.  Raises: OSError."""
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
        """Whether the buffer of unconfirmed publishes has room."""
        memory = self.session.memory
        return memory is None or memory.kept.size <= CLIENT_UNCONFIRMED_BYTES_MAX

    def wait_until_recovered(self) -> None:
        """Wait for the end of a recovery in progress."""
        if self._is_attempting:
            self.run_until(lambda: not self._is_attempting)

    def _attempt(self, deadline: float | None) -> bool:
        """Continue a recovery attempt; return False while there is no socket to read.

        Wait for the start of the attempt, at most until `deadline`.  Opening the socket may then
        take up to the connection timeout.
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
            # Interrupted, for example by Ctrl-C: the next call makes another attempt.
            self._attempt_failed(ConnectionAbortedError("the attempt was interrupted"))
            raise
        return True

    def _on_progress(self) -> None:
        """Restart the timeout of the recovery attempt, because the broker has answered."""
        self._attempt_until = time.monotonic() + self.parameters.connection_timeout_ms / 1000

    def _on_lost(self, error: Exception) -> None:
        """Start recovery after the loss of the connection."""
        self.drop_link()
        self._try_again(error)

    def _try_again(self, error: Exception) -> None:
        """Schedule the next attempt, or give up."""
        assert self.recoverer is not None
        now_ms = monotonic_ms()
        delay_ms = self.recoverer.next_ms(error, now_ms)
        if delay_ms is None:
            self._give_up(error)
        else:
            self._attempt_at_ms = now_ms + delay_ms

    def _attempt_failed(self, error: Exception) -> None:
        """Handle a failed recovery attempt."""
        if self._attempt_at_ms is not None or not self._is_attempting:
            return
        self._attempt_at_ms = 0
        self.drop_link()
        self._abandon_attempt()
        self._try_again(error)

    def _on_restored(self, error: Exception | None) -> None:
        """Handle the success or failure of the restoration on a new connection."""
        if error is None:
            self._recovered()
        else:
            self._attempt_failed(error)
