"""An asyncio connection: `connect`, opening, closing and the transport.

The connection stops reading while too many messages are buffered for the application.  Publishers
wait while the broker does not read or has blocked the connection.

Invariants: everything runs in the event loop in which `connect` was called; output of one iteration
of the loop is sent in one write, or in two if its first part is sent at once; when the connection
ends, so does every channel and every wait.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from typing import TYPE_CHECKING, Final, Self, Unpack, cast

from leveret.client.asynchronous.calls import Call, Waiting
from leveret.client.asynchronous.channel import Channel, TracedChannel
from leveret.client.asynchronous.one_loop import OneLoop
from leveret.client.asynchronous.opening import Opener
from leveret.client.asynchronous.rpc import Requester
from leveret.client.certificates import explained
from leveret.client.errors import ConnectionLost, OutputFull
from leveret.client.options import PublishArguments, shows_options
from leveret.client.shell import requests
from leveret.client.shell.connection import UNANSWERED, Prepared, ShellConnection, monotonic_ms
from leveret.client.shell.rpc import REPLY_SECONDS
from leveret.limits import CLIENT_OUTPUT_BYTES_HIGH, CLIENT_UNCONFIRMED_BYTES_MAX

if TYPE_CHECKING:
    from leveret.client.addresses import Address
    from leveret.client.events import Event
    from leveret.client.message import Message
    from leveret.client.options import ConnectOptions
    from leveret.client.recovery.recoverer import Recoverer
    from leveret.client.shell.channel import Body, ShellChannel
    from leveret.client.uri import Parameters


@shows_options()
def connect(uri: Address = None, **options: Unpack[ConnectOptions]) -> Opener[Connection]:
    """Connect, log in and open the vhost; await the result or use it in `async with`.

    `uri` is one URI or several, as a list or separated by commas; they are tried in order.  Each
    keyword argument sets one part of the URI; `timeout` and `heartbeat` are in seconds.  `amqps://`
    and `tls=True` verify the broker's certificate unless `ssl` says otherwise.  A lost connection
    is reopened and everything on it is restored, unless `recover` is False; a `Recovery` sets the
    limits and the callbacks.

    Raises when awaited: ValueError or TypeError for invalid arguments, or when the URI and a
    keyword argument contradict each other; OSError, TimeoutError or ConnectionLost when no broker
    answers, or Unreachable when none of several addresses does; CertificateRefused or TlsFailed;
    AccessRefusedHard (403) or NotAllowed (530) when the broker refuses the login.
    """
    return Opener(_connect(uri, options))


async def _connect(uri: Address, options: ConnectOptions) -> Connection:
    """Connect to the first address that answers."""
    prepared = Prepared(uri, options)
    for parameters in prepared.addresses:
        connection = Connection(parameters, prepared)
        try:
            async with asyncio.timeout(parameters.connection_timeout_ms / 1000):
                await connection.open()
        except UNANSWERED as error:
            prepared.failed(parameters, error)
        else:
            return connection
    raise AssertionError("the last failure is raised")


#: A tick later than this means that the loop was blocked.
_LATE_MS: Final = 250


class _Protocol(asyncio.Protocol):
    """Passes transport events to the connection until the connection drops the transport."""

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection | None = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast, not asserted, because uvloop's transports do not inherit from asyncio's.
        if self.connection is None:
            cast("asyncio.Transport", transport).abort()
        else:
            self.connection.made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self.connection.transport_lost(exc)

    def pause_writing(self) -> None:
        if self.connection is not None:
            self.connection.hold_output(True)

    def resume_writing(self) -> None:
        if self.connection is not None:
            self.connection.hold_output(False)


class Connection(ShellConnection):
    """One connection, for all tasks of an event loop; created by `connect`, closed by `async with`.

    Raises: ConnectionInUse from every call outside the loop in which `connect` was awaited.
    """

    def __init__(self, parameters: Parameters, prepared: Prepared) -> None:
        super().__init__(parameters, prepared)
        self.one_loop = OneLoop()
        self._requester = Requester(self)
        self._loop = self.one_loop.loop
        self._transport: asyncio.Transport | None = None
        self._protocol: _Protocol | None = None
        self._recovering: asyncio.Task[None] | None = None
        #: Limits the time of the current recovery attempt, if any.
        self._attempt_limit: asyncio.Timeout | None = None
        self._restored: asyncio.Future[None] = self._loop.create_future()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._waiters: list[asyncio.Future[None]] = []
        self._flush_scheduled = False
        #: Whether nothing was flushed since the last input.
        self._is_input_last = False
        self._output_held = False
        #: Cached: the output buffers have room.  False means unknown.
        self._is_roomy = False
        self._input_held = False
        self._timer: asyncio.TimerHandle | None = None

    # -- opening and closing -----------------------------------------------------------------------

    async def open(self) -> None:
        """Open the socket and wait for the handshake.  `connect` calls this once."""
        try:
            await self.dial()
        except BaseException:
            self.stop_recovering()
            await self._abort()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, code: int = 200, text: str = "") -> None:
        """Close the connection and all its channels, with a reason; do nothing if it has ended."""
        self.one_loop.check()
        self.stop_recovering()
        if not self._ended.done():
            self.session.close(code, text)
            self.wrote()
            try:
                async with asyncio.timeout(self.parameters.connection_timeout_ms / 1000):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                await self._abort()
        await asyncio.shield(self._gone)

    async def _abort(self) -> None:
        """Abort the socket and wait until it is closed."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._gone)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended.  Raises: the error that ended it, if any."""
        await asyncio.shield(self._gone)
        if self.session.error is not None:
            raise self.session.error.with_traceback(None)

    # -- requests of the application ---------------------------------------------------------------

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The open channels of this connection."""
        owners = [one.owner for one in self.session.channels.values()]
        return tuple(owner for owner in owners if isinstance(owner, Channel))

    def channel(self) -> Opener[Channel]:
        """Open a channel: `await connection.channel()`, or `async with connection.channel()`.

        Raises when awaited: the connection's error; NoFreeChannel; ConnectionInUse.
        """
        return Opener(self._open_channel())

    async def _open_channel(self) -> Channel:
        """Open a channel."""
        self.one_loop.check()
        if self.is_recovering:
            await self.recovered()
        future: asyncio.Future[None] = self._loop.create_future()
        kind = Channel if self.traces is None else TracedChannel
        channel = kind(self, Waiting(future))
        self.wrote()
        try:
            await future
        except asyncio.CancelledError:
            channel.close_session(200, "")
            self.wrote()
            raise
        return channel

    async def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Send the broker a new token before the old one expires; later logins use it too.

        Raises: NotAllowed (530) if the broker refuses it, which ends the connection.
        """
        self.one_loop.check()
        future: asyncio.Future[None] = self._loop.create_future()
        request = requests.update_secret(new_secret, reason)
        self.session.request(request.method, Call(request, future))
        self.wrote()
        await future
        self._secret_updated(new_secret)

    @shows_options(PublishArguments)
    async def request(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        *,
        timeout: float | None = REPLY_SECONDS,  # noqa: ASYNC109  # the request expires with it
        **options: Unpack[PublishArguments],
    ) -> Message:
        """Publish a request and return its reply, a message that needs no ack.

        Any number of tasks may wait for replies.  The service replies with `channel.reply`, or with
        any client by publishing to `reply_to` with the same correlation ID.  The request is
        transient and expires with `timeout` (seconds; None: no limit).  The options are those of
        `publish`, but `request` sets `correlation_id` and `reply_to` itself.

        Raises: Returned if no queue took the request; TimeoutError without a reply in time; Nacked;
        the connection's error; ValueError or TypeError for an invalid argument; ConnectionInUse.
        """
        self.one_loop.check()
        return await self._requester.request(body, exchange, routing_key, timeout, options)

    # -- output ------------------------------------------------------------------------------------

    def wrote(self, at_once: bool = False) -> bool:
        """Flush in this iteration of the loop; return True if so much output had to go at once.

        With `at_once`, the first output since the last input is flushed now: another iteration of
        the loop would only delay the answer, for which the caller probably waits next.
        """
        if self._input_held and self.session.awaits_reply:
            self._read(True)
        if self.session.output_bytes >= CLIENT_OUTPUT_BYTES_HIGH:
            self._flush()
            return True
        if at_once and self._is_input_last and not self._flush_scheduled:
            self._flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return False

    def _flush(self) -> None:
        """Write pending output to the transport."""
        self._flush_scheduled = self._is_input_last = False
        if self._transport is None:
            return
        self._is_roomy = False
        data = self.session.data_to_send()
        if data and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_held(self) -> bool:
        """Whether publishers must wait, as the broker does not read or has blocked them."""
        return self._output_held or self.blocked_reason is not None

    async def writable(self, channel: ShellChannel) -> None:
        """Wait until a publish may be sent.  Raises: the channel's error."""
        while self.is_held or not channel.flow_active:
            if not self.is_recovering:
                channel.session.check_open()
            await self._wait()

    async def drained(self) -> None:
        """Wait until the transport accepts more output; always yield to other tasks once."""
        await asyncio.sleep(0)
        while self._output_held and self.is_open:
            await self._wait()

    def check_output(self) -> None:
        """Check that the output buffers have room.  Raises: OutputFull."""
        if not self._is_roomy:
            self._check_room()

    def _check_room(self) -> None:
        """Check that the output buffers have room and cache the result.  Raises: OutputFull."""
        memory = self.session.memory
        if memory is not None and memory.kept.size > CLIENT_UNCONFIRMED_BYTES_MAX:
            raise OutputFull(f"{memory.kept.size} bytes of publishes await their confirm")
        if self._output_held and self._transport is not None:
            waiting = self._transport.get_write_buffer_size() + self.session.output_bytes
            if waiting > self.output_bytes_max:
                raise OutputFull(f"{waiting} bytes wait for the broker to read")
        self._is_roomy = not self._output_held

    async def _wait(self) -> None:
        """Wait until `wake` is called."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Wake the tasks in `_wait`, so that they check their condition again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def hold_output(self, held: bool) -> None:
        """Record whether the transport's write buffer is full."""
        self._output_held = held
        self._is_roomy = False
        if not held:
            self.wake()

    # -- input -------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether the socket is read; False while too many messages are buffered."""
        return not self._input_held

    def hold(self, size: int) -> None:
        """Count bytes of buffered messages; resume reading below half of the limit."""
        super().hold(size)
        if self._input_held and self._input_bytes < self.input_bytes_high // 2:
            self._read(True)

    def _read(self, reading: bool) -> None:
        """Resume or pause reading; unread input stays in the kernel and at the broker."""
        if self._transport is None or self._transport.is_closing():
            return
        self._input_held = not reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _check_input(self) -> None:
        """Pause reading when too much is buffered, unless a reply is still expected."""
        if self._is_overfull:
            self._abort_overfull()
        elif self._input_bytes > self.input_bytes_high and not self.session.awaits_reply:
            self._read(False)

    def made(self, transport: asyncio.Transport) -> None:
        """Begin the handshake on an open socket."""
        self._transport = transport
        self._flush()

    def received(self, data: bytes) -> None:
        """Handle bytes from the broker."""
        self._is_input_last = True
        self._handle(self.session.receive(data))
        self._check_input()
        if self._timer is None:
            self._schedule_tick()

    def transport_lost(self, error: Exception | None) -> None:
        """Handle the loss of the socket."""
        reason = f"the socket failed: {error}" if error is not None else "the broker hung up"
        self._handle(self.session.lost(reason))
        if self.is_recovering:
            return
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)

    def _handle(self, events: list[Event]) -> None:
        """Dispatch events and send the output they caused."""
        self._is_roomy = False
        super()._handle(events)
        if self.session.output_bytes:
            self._flush()

    def _on_opened(self) -> None:
        """Let `open` return."""
        if not self._opened.done():
            self._opened.set_result(None)

    def _on_unblocked(self) -> None:
        """Wake waiting publishers."""
        self.wake()

    def _on_ended(self, error: Exception) -> None:
        """Wake waiting tasks and close the socket at the end of the connection."""
        if not self._opened.done():
            self._opened.set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self.wake()
        self._flush()
        if self._transport is None:
            return
        if isinstance(error, ConnectionLost):
            self._transport.abort()
        else:
            self._transport.close()
            # Free the socket even if the broker never reads the close.
            delay = self.parameters.connection_timeout_ms / 1000
            self._timer = self._loop.call_later(delay, self._transport.abort)

    # -- recovery ----------------------------------------------------------------------------------

    async def dial(self) -> None:
        """Open a socket to the session's target and wait for the handshake."""
        target = self.session.parameters
        self._protocol = protocol = _Protocol(self)
        ssl = self._prepared.ssl(target)
        try:
            await self._loop.create_connection(lambda: protocol, target.host, target.port, ssl=ssl)
        except ssl_module.SSLError as error:
            raise explained(error, target) from error
        await self._opened

    async def recovered(self) -> None:
        """Wait until recovery has succeeded or has been given up."""
        while self.is_recovering:
            await self._wait()

    def stop_recovering(self) -> None:
        """Disable recovery; a recovery in progress ends the connection."""
        # The task may already be cancelled, as at the end of `asyncio.run`.
        if self._is_attempting and self._recovering is not None:
            self._recovering.cancel()
        super().stop_recovering()

    def _on_lost(self, error: Exception) -> None:
        """Start recovery after the loss of the connection."""
        self._drop_transport()
        self._output_held = True
        self._is_roomy = False
        self._input_held = False
        self._recovering = self._loop.create_task(self._recover(error))

    async def _recover(self, error: Exception) -> None:
        """Reconnect until it succeeds or a limit is reached."""
        recoverer = self.recoverer
        assert recoverer is not None
        while True:
            delay_ms = recoverer.next_ms(error, monotonic_ms())
            if delay_ms is None:
                self._give_up(error)
                return
            await asyncio.sleep(delay_ms / 1000)
            try:
                async with asyncio.timeout(self._attempt_seconds) as self._attempt_limit:
                    await self._attempt(recoverer)
            except Exception as failure:  # noqa: BLE001 -- the recoverer judges the error
                error = failure
                self._abandon_attempt()
            else:
                return
            finally:
                self._attempt_limit = None

    @property
    def _attempt_seconds(self) -> float:
        """Timeout of one recovery attempt."""
        return self.parameters.connection_timeout_ms / 1000

    def _on_progress(self) -> None:
        """Restart the timeout of the recovery attempt, because the broker has answered."""
        limit = self._attempt_limit
        if limit is not None and not limit.expired():
            limit.reschedule(self._loop.time() + self._attempt_seconds)

    async def _attempt(self, recoverer: Recoverer) -> None:
        """Connect and restore channels, topology and consumers."""
        self.session = recoverer.begin(monotonic_ms())
        self._opened = self._loop.create_future()
        self._restored = self._loop.create_future()
        await self.dial()
        await self._restored

    def _attempt_failed(self, error: Exception) -> None:
        """Fail the current recovery attempt."""
        for future in (self._opened, self._restored):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved, in case nothing awaits it

    def _on_restored(self, error: Exception | None) -> None:
        """Handle the success or failure of the restoration on a new connection."""
        if error is not None:
            self._attempt_failed(error)
            return
        self._recovered()
        self.hold_output(False)
        if not self._restored.done():
            self._restored.set_result(None)

    def _abandon_attempt(self) -> None:
        """Drop the connection of a failed attempt."""
        self._drop_transport()
        super()._abandon_attempt()

    def _drop_transport(self) -> None:
        """Abort the socket and ignore its further events."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._protocol is not None:
            self._protocol.connection = None
        if self._transport is not None:
            self._transport.abort()
        self._protocol = self._transport = None

    def _give_up(self, error: Exception | None) -> None:
        """End the connection without recovering it."""
        super()._give_up(error)
        if not self._gone.done():
            self._gone.set_result(None)

    # -- heartbeats --------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        """Set the timer for the session's next tick, if any."""
        due_ms = self._due_ms()
        if due_ms is not None:
            delay = max(0, due_ms - monotonic_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        """Pass the current time to the session.

        A late tick means that the loop was blocked, so that input may still be unread.
        """
        due_ms = self._due_ms()
        now_ms = monotonic_ms()
        late = due_ms is not None and now_ms - due_ms > _LATE_MS
        self._handle_tick(now_ms, reading=not (late or self._input_held))
        if self.session.output_bytes:
            self._flush()
        self._schedule_tick()

    def _on_due(self) -> None:
        """Reset the timer, because a tick is due earlier."""
        if self._timer is not None:
            self._timer.cancel()
        self._schedule_tick()
