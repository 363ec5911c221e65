"""A connection in asyncio: the sans-IO session over a transport.

It opens the socket, moves bytes, keeps the heartbeat timer, and holds both directions: it stops
reading while too many messages wait for the application, and publishers wait while the broker does
not read or said that it is blocked.

Invariants: everything runs in the loop that `connect` was called in; output written in one turn of
the loop goes out as one piece; the end of the connection ends every channel and every waiter.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from typing import TYPE_CHECKING, Final, Self, cast

from leveret.client import requests
from leveret.client.asynchronous.calls import Call, Waiting
from leveret.client.asynchronous.channel import Channel
from leveret.client.errors import Closed, ConnectionLost, InputFull, OutputFull
from leveret.client.shell_connection import ShellConnection, monotonic_ms, prepare
from leveret.limits import CLIENT_OUTPUT_BYTES_HIGH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.events import Ended, Event
    from leveret.client.uri import Parameters


#: A tick that comes so much later than it was due says that the loop stood still.
_LATE_MS: Final = 250


async def connect(
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
    connection = Connection(parameters, properties)
    async with asyncio.timeout(parameters.connection_timeout_ms / 1000):
        await connection.open(ssl)
    return connection


class _Protocol(asyncio.Protocol):
    """Hands what the transport reports to the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Cast, not asserted: uvloop's transports do not inherit asyncio's.
        self._connection.made(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.transport_lost(exc)

    def pause_writing(self) -> None:
        self._connection.hold_output(True)

    def resume_writing(self) -> None:
        self._connection.hold_output(False)


class Connection(ShellConnection):
    """One connection; made by `connect`."""

    def __init__(self, parameters: Parameters, properties: Mapping[str, object]) -> None:
        super().__init__(parameters, properties)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._waiters: list[asyncio.Future[None]] = []
        self._flush_scheduled = False
        self._output_held = False
        self._input_held = False
        self._timer: asyncio.TimerHandle | None = None

    # -- opening and closing -----------------------------------------------------------------------

    async def open(self, ssl: ssl_module.SSLContext | None) -> None:
        """Open the socket and wait for the handshake; called once, by `connect`."""
        host, port = self.parameters.host, self.parameters.port
        try:
            await self._loop.create_connection(lambda: _Protocol(self), host, port, ssl=ssl)
            await self._opened
        except BaseException:
            await self._abort()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self, code: int = 200, text: str = "") -> None:
        """Close the connection, with all its channels; does nothing when it has ended."""
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
        """Drop the socket and wait until it is gone."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._gone)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended.  Raises: what ended it unless this side closed."""
        await asyncio.shield(self._gone)
        if self.session.error is not None:
            raise self.session.error.with_traceback(None)

    # -- what the application asks for -------------------------------------------------------------

    async def channel(self) -> Channel:
        """Open a channel.  Raises: the connection's error; NoFreeChannel."""
        channel = Channel(self)
        future: asyncio.Future[None] = self._loop.create_future()
        channel.session = self.session.open_channel(channel, Waiting(future))
        self.wrote()
        try:
            await future
        except asyncio.CancelledError:
            channel.session.close()
            self.wrote()
            raise
        return channel

    async def update_secret(self, new_secret: str, reason: str = "") -> None:
        """Hand the broker a fresh token.  Raises: NotAllowed (530)."""
        future: asyncio.Future[None] = self._loop.create_future()
        request = requests.update_secret(new_secret, reason)
        self.session.request(request.method, Call(request, future))
        self.wrote()
        await future

    # -- output ------------------------------------------------------------------------------------

    def wrote(self) -> bool:
        """Have what was written sent in this turn of the loop; True when it went at once."""
        if self._input_held and self.session.awaits_reply:
            self._read(True)
        if self.session.output_bytes >= CLIENT_OUTPUT_BYTES_HIGH:
            self._flush()
            return True
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        return False

    def _flush(self) -> None:
        """Give what was written to the transport."""
        self._flush_scheduled = False
        data = self.session.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_held(self) -> bool:
        """Whether publishers are to wait: the broker does not read, or says it is blocked."""
        return self._output_held or self.blocked_reason is not None

    async def writable(self, channel: Channel) -> None:
        """Wait until a publish may go out.  Raises: the channel's error."""
        while self.is_held or not channel.flow_active:
            channel.session.check_open()
            await self._wait()

    async def drained(self) -> None:
        """Wait until the transport takes more; other tasks get their turn in any case."""
        await asyncio.sleep(0)
        while self._output_held and self.is_open:
            await self._wait()

    def check_output(self) -> None:
        """Refuse more output than is held.  Raises: OutputFull."""
        if self._output_held and self._transport is not None:
            waiting = self._transport.get_write_buffer_size() + self.session.output_bytes
            if waiting > self.output_bytes_max:
                raise OutputFull(f"{waiting} bytes wait for the broker to read")

    async def _wait(self) -> None:
        """Wait until something that holds publishers changes."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let publishers that wait look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def hold_output(self, held: bool) -> None:
        """Take the transport's word on whether it is full."""
        self._output_held = held
        if not held:
            self.wake()

    # -- input -------------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether the socket is read; not while too many messages wait for the application."""
        return not self._input_held

    def hold(self, size: int) -> None:
        """Count bytes of messages that wait for the application, and read again when few do."""
        super().hold(size)
        if self._input_held and self._input_bytes < self.input_bytes_high // 2:
            self._read(True)

    def _read(self, reading: bool) -> None:
        """Read from the socket, or leave what comes to the kernel and so to the broker."""
        if self._transport is None or self._transport.is_closing():
            return
        self._input_held = not reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _check_input(self) -> None:
        """Pause reading when too much waits, unless a reply is to come behind it."""
        if self._is_overfull:
            text = f"{self._input_bytes} bytes of messages wait; limit them by channel.qos()"
            self._handle(self.session.abort(InputFull(text)))
        elif self._input_bytes > self.input_bytes_high and not self.session.awaits_reply:
            self._read(False)

    def made(self, transport: asyncio.Transport) -> None:
        """Take the open socket and begin the handshake."""
        self._transport = transport
        self._flush()

    def received(self, data: bytes) -> None:
        """Take bytes from the broker."""
        self._handle(self.session.receive(data))
        self._check_input()
        if self._timer is None:
            self._schedule_tick()

    def transport_lost(self, error: Exception | None) -> None:
        """Take the end of the socket."""
        reason = f"the socket failed: {error}" if error is not None else "the broker hung up"
        self._handle(self.session.lost(reason))
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)

    def _handle(self, events: list[Event]) -> None:
        """Give the events to whom they concern, and send what they wrote."""
        super()._handle(events)
        if self.session.output_bytes:
            self._flush()

    def _on_opened(self) -> None:
        """Let `open` return."""
        if not self._opened.done():
            self._opened.set_result(None)

    def _on_unblocked(self) -> None:
        """Let publishers look again."""
        self.wake()

    def _on_ended(self, event: Ended) -> None:
        """Take the end of the connection: every waiter hears of it and the socket closes."""
        error = event.error or Closed("the connection was closed")
        for token in event.tokens:
            token.end(error)
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
        if isinstance(event.error, ConnectionLost):
            self._transport.abort()
        else:
            self._transport.close()
            # A broker that does not read its close keeps no socket open.
            delay = self.parameters.connection_timeout_ms / 1000
            self._timer = self._loop.call_later(delay, self._transport.abort)

    # -- heartbeats --------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        """Set the timer for the session's next tick, if it wants one."""
        due_ms = self.session.next_tick_ms()
        if due_ms is not None:
            delay = max(0, due_ms - monotonic_ms()) / 1000
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        """Tell the session the time.

        A late tick says that the loop stood still: what came meanwhile is still to be read.
        """
        due_ms = self.session.next_tick_ms()
        now_ms = monotonic_ms()
        late = due_ms is not None and now_ms - due_ms > _LATE_MS
        self._handle(self.session.tick(now_ms, reading=not (late or self._input_held)))
        self._schedule_tick()
