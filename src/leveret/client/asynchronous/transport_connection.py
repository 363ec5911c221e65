"""A session over an asyncio transport: it moves bytes, keeps time and holds both directions.

It stops reading while too many messages wait for the application, and publishers wait while the
broker does not read or said that it is blocked.

Not here: what an application asks of its connection (`connection`).

Invariants: output written in one turn of the loop goes out as one piece; the end of the connection
ends every waiter.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from leveret.client.errors import Closed, ConnectionLost, InputFull, OutputFull
from leveret.client.shell.connection import ShellConnection, monotonic_ms
from leveret.limits import CLIENT_OUTPUT_BYTES_HIGH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.events import Ended, Event
    from leveret.client.shell.channel import ShellChannel
    from leveret.client.uri import Parameters


#: A tick that comes so much later than it was due says that the loop stood still.
_LATE_MS: Final = 250


class TransportConnection(ShellConnection):
    """What is written and read of a connection, and when."""

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

    async def writable(self, channel: ShellChannel) -> None:
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
