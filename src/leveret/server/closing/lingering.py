"""Closes sockets so that the peer receives all output.

If a socket is closed with unread input, the kernel sends a reset, and the reset discards output
that the peer has not read: a connection.close-ok, the reason for a refusal, an HTTP answer.  Every
accepted socket therefore lingers, as in nginx with `lingering_close`: `close` sends the rest of the
output, shuts down the writing side, and reads and drops input until the peer closes too.

Invariants: a lingering socket keeps its slot and is the first to lose it to a new connection; it
drops at most `LINGER_BYTES_MAX`, and ends after `LINGER_SECONDS_MAX`, or after
`LINGER_IDLE_SECONDS_MAX` without traffic; all lingering sockets together are read once per
`LINGER_READ_MS`.  The protocol above is notified of the loss of the connection once all output is
sent, so later input is neither decrypted nor parsed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, cast

from leveret.limits import LINGER_SECONDS_MAX
from leveret.session.admission import Admission, Slot

#: How long a closed socket may linger without any traffic (nginx's `lingering_timeout`).
LINGER_IDLE_SECONDS_MAX: Final = 5

#: The maximum input that a lingering socket drops: some tens of milliseconds of work, and more than
#: the default buffers of both kernels can contain.
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024

#: One lingering socket is read once per this many ms, however many there are.  A read takes up to
#: 256 KiB and 0.1 ms, so peers that send at full speed use a tenth of the event loop's time.
LINGER_READ_MS: Final = 1


class LingeringAccept(asyncio.Protocol):
    """Passes a newly accepted socket to its protocol, with a transport that lingers."""

    def __init__(self, upper: asyncio.Protocol, slot: Slot, admission: Admission) -> None:
        self._upper = upper
        self._slot = slot
        self._admission = admission

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the socket to its protocol, with a transport that lingers."""
        # uvloop's transports are not subclasses of asyncio's.
        raw = cast(asyncio.Transport, transport)
        raw.set_protocol(self._upper)
        self._upper.connection_made(LingeringTransport(raw, self._slot, self._admission))


class LingeringTransport(asyncio.Transport):
    """The loop's transport of an accepted socket, except that `close` lingers."""

    # Slots, because there is an instance for each connection.
    __slots__ = (
        "_admission",
        "_closed",
        "_peer",
        "_raw",
        "_slot",
        "get_write_buffer_size",
        "write",
        "writelines",
    )

    def __init__(self, raw: asyncio.Transport, slot: Slot, admission: Admission) -> None:
        super().__init__()
        self._raw = raw
        self._slot = slot
        self._admission = admission
        #: The address of the peer that a proxy has sent, or None.
        self._peer: tuple[str, int] | None = None
        self._closed = False
        # These methods are called for each message, so they bypass this class.
        self.write = raw.write  # type: ignore[method-assign]
        # In some versions of Python, asyncio's own `writelines` does not pause the protocol.
        joins = isinstance(raw, asyncio.Transport)
        lines = partial(_write_joined, raw) if joins else raw.writelines
        self.writelines = lines  # type: ignore[method-assign]
        self.get_write_buffer_size = raw.get_write_buffer_size  # type: ignore[method-assign]

    def name_peer(self, host: str, port: int) -> None:
        """Set the address of the peer that a proxy has sent."""
        self._peer = (host, port)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about the connection; a proxy may have sent the peer's address."""
        if name == "peername" and self._peer is not None:
            return self._peer
        return self._raw.get_extra_info(name, default)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high water mark of the write buffer."""
        return self._raw.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks of the write buffer."""
        if not self._closed:
            self._raw.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """Return False, because only `close` shuts down the writing side."""
        return False

    def pause_reading(self) -> None:
        """Pause reading."""
        if not self._closed:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if not self._closed:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        """Return whether the transport is receiving."""
        return not self._closed and self._raw.is_reading()

    def is_closing(self) -> bool:
        """Return whether the transport is closing."""
        return self._closed or self._raw.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol above."""
        if not self._closed:
            self._raw.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        return self._raw.get_protocol()

    def close(self) -> None:
        """Send the rest of the output, and close when the peer closes or the time limit ends."""
        if self.is_closing():
            return
        self._closed = True
        self.write = _drop  # type: ignore[method-assign]
        self.writelines = _drop  # type: ignore[method-assign, assignment]
        Lingering(self._raw, self._slot, self._admission)

    def abort(self) -> None:
        """Drop the connection, even if it lingers."""
        self._raw.abort()


def _write_joined(raw: asyncio.Transport, list_of_data: Iterable[Any]) -> None:
    """Send several pieces of data as one."""
    raw.write(b"".join(list_of_data))


def _drop(data: object) -> None:
    """Drop output; replaces `write` and `writelines` after the close."""


class Lingering(asyncio.Protocol):
    """The protocol that replaces a connection's own while it lingers."""

    def __init__(self, raw: asyncio.Transport, slot: Slot, admission: Admission) -> None:
        self._raw = raw
        self._slot = slot
        self.admission = admission
        self._loop = asyncio.get_running_loop()
        #: The connection's own protocol, until it is notified of the loss of the connection.
        self._upper: asyncio.BaseProtocol | None = raw.get_protocol()
        self._dropped = 0
        #: The timer that resumes reading.
        self._read: asyncio.TimerHandle | None = None
        #: Whether the peer has closed its side before all output was sent.
        self._ended = False
        self._until = self._loop.time() + LINGER_SECONDS_MAX
        #: The bytes dropped and the bytes not sent at the last check.
        self._seen = (0, 0)
        self._timer = self._loop.call_later(LINGER_IDLE_SECONDS_MAX, self._look)
        admission.linger(slot, raw.abort)
        raw.set_protocol(self)
        # With a limit of 0, the loop calls `resume_writing` once all output is sent.
        raw.set_write_buffer_limits(0)
        if len(admission.lingering) > 1:
            self._read_later()
        else:
            raw.resume_reading()
        if raw.get_write_buffer_size() == 0:
            # Deferred, because callers of `close` do not expect a call of the protocol at once.
            self._loop.call_soon(self.resume_writing)

    def pause_writing(self) -> None:
        """Do nothing; `resume_writing` is called once all output is sent."""

    def resume_writing(self) -> None:
        """Shut down the writing side after all output is sent."""
        if self._upper is None or self._raw.is_closing():
            return
        with contextlib.suppress(OSError):
            # If the peer has disconnected, `connection_lost` is called.
            self._raw.write_eof()
        if self._ended:
            self._raw.close()
        else:
            self._tell(None)

    def data_received(self, data: bytes) -> None:
        """Drop input, and pause reading to limit the time for all lingering sockets."""
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES_MAX:
            self._raw.abort()
            return
        self._read_later()

    def _read_later(self) -> None:
        self._raw.pause_reading()
        pause_ms = LINGER_READ_MS * len(self.admission.lingering)
        self._read = self._loop.call_later(pause_ms / 1000, self._resume)

    def _resume(self) -> None:
        if not self._raw.is_closing():
            self._raw.resume_reading()

    def eof_received(self) -> bool:
        """Close the socket if all output is sent."""
        self._ended = True
        return self._upper is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot."""
        self._timer.cancel()
        if self._read is not None:
            self._read.cancel()
        self._tell(exc)
        self.admission.lingered(self._slot)

    def _tell(self, exc: Exception | None) -> None:
        upper, self._upper = self._upper, None
        if upper is not None:
            upper.connection_lost(exc)

    def _look(self) -> None:
        """Drop a connection that is at its time limit or had no traffic since the last check."""
        seen = (self._dropped, self._raw.get_write_buffer_size())
        if seen == self._seen or self._loop.time() >= self._until:
            self._raw.abort()
            return
        self._seen = seen
        self._timer = self._loop.call_later(LINGER_IDLE_SECONDS_MAX, self._look)


async def end_lingering(seconds: float, *admissions: Admission) -> None:
    """Wait up to `seconds` for the peers of lingering sockets to close, then drop the rest."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    for admission in admissions:
        while admission.lingering and (left := until - loop.time()) > 0:
            gone = asyncio.Event()
            admission.when_left(gone.set)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), left)
        for slot in tuple(admission.lingering):
            slot.expel()
    # Let the event loop call `connection_lost` of the dropped sockets.
    await asyncio.sleep(0)
