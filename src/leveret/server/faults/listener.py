"""An AMQP listener that applies the faults of `traffic` to its connections.

Connections split their input into frames, so that a method can be answered without the session:
with an error, as if the session had found one, or with basic.nack.  A frame is intercepted only
after the session has parsed all earlier input, to preserve the order.

Sockets are shut down before they are closed, because the peer would not notice the close of a
socket that a forked child has copied.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.broker.broker import Broker
from leveret.broker.vhost.vhost import REJECTED
from leveret.errors import AmqpError, SoftError
from leveret.limits import INPUT_BYTES_HELD_MAX
from leveret.server.amqp import ClientProtocol, Log
from leveret.server.faults.traffic import InjectedFaults
from leveret.server.listener import AmqpListener
from leveret.server.runner import Runner
from leveret.session.admission import Admission, Slot
from leveret.session.authentication import Authenticator
from leveret.session.channel.channel import CONFIRM
from leveret.session.connection.connection import AmqpConnection
from leveret.session.settings import SessionSettings, Tokens
from leveret.session.states import CLOSING
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_HEAD_BYTES,
    FRAME_HEADER,
    FRAME_METHOD,
    PROTOCOL_HEADER,
)
from leveret.wire.methods.ids import BASIC_PUBLISH

#: The interval at which a session that cannot accept frames is checked.
AGAIN_SECONDS: Final = 0.001


class FaultyListener(AmqpListener):
    """Accepts connections on one address, and applies the faults of `traffic` to them."""

    def __init__(
        self,
        traffic: InjectedFaults,
        runner: Runner,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        tokens: Tokens,
        admission: Admission,
        log: Log,
        say: Callable[[str, str], None],
    ) -> None:
        super().__init__(runner, broker, settings, authenticator, tokens, admission, log, say)
        self.traffic = traffic

    def make(self, network: str) -> tuple[asyncio.Protocol, Slot]:
        """Return the protocol of a new connection, and its slot."""
        protocol = FaultyProtocol(self, network, self.traffic)
        return protocol, protocol.slot


class _Content:
    """The incomplete content of an intercepted publish."""

    def __init__(self, error: AmqpError | None) -> None:
        #: The error that answers the publish, or None for a basic.nack.
        self.error = error
        #: The number of missing bytes of the body; -1 before the content header.
        self.body_left = -1


class FaultyProtocol(ClientProtocol):
    """The protocol of one connection that is subject to faults."""

    def __init__(self, listener: FaultyListener, network: str, traffic: InjectedFaults) -> None:
        super().__init__(listener, network)
        self._loop = asyncio.get_running_loop()
        self._admission = listener.admission
        self._traffic = traffic
        self._socket: socket.socket | None = None
        self._reset = False
        #: The pieces of delayed input, and when each is due.
        self._late: deque[tuple[float, bytes]] = deque()
        self._late_bytes = 0
        self._held_back = False
        #: An incomplete frame at the end of the input.
        self._rest = b""
        #: False if the input is not a sequence of frames, so that the session reports the error.
        self._has_frames = True
        self._begun_input = False
        #: Complete frames that the session cannot accept yet.
        self._frames: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        #: Intercepted publishes, by channel.
        self._contents: dict[int, _Content] = {}

    @property
    def connection(self) -> AmqpConnection:
        """The session, which speaks AMQP."""
        session = super().connection
        assert isinstance(session, AmqpConnection)
        return session

    # -- the socket --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session, or reset the connection if that is requested."""
        self._socket = transport.get_extra_info("socket")
        if self._traffic.resets():
            self._reset = True
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection, even if a forked child has a copy of the socket."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        if self._reset:
            self._admission.leave(self.slot)
        else:
            super().connection_lost(exc)

    # -- late input --------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process input at once or after the delay, in order."""
        seconds = self._traffic.delay_seconds
        if seconds > 0 or self._late:
            due = max(self._loop.time() + seconds, self._late[-1][0] if self._late else 0.0)
            self._late.append((due, data))
            self._late_bytes += len(data)
            self._wait()
        elif not self._reset:
            self._cut(data)
        self._judge_input()

    def _wait(self) -> None:
        """Set the timer for delayed input, or for frames that the session cannot accept yet."""
        if self._timer is None:
            when = self._loop.time() + AGAIN_SECONDS if self._frames else self._late[0][0]
            self._timer = self._loop.call_at(when, self._come_back)

    def _come_back(self) -> None:
        self._timer = None
        try:
            self._take_frames()
            while self._late and not self._frames and self._late[0][0] <= self._loop.time():
                data = self._late.popleft()[1]
                self._late_bytes -= len(data)
                self._cut(data)
        except Exception as bug:  # noqa: BLE001 (else the loop would only end the connection)
            self._runner.broken(bug)
        if self._late or self._frames:
            self._wait()
        self._judge_input()

    def _judge_input(self) -> None:
        """Pause reading while much input is buffered here, or resume it."""
        kept = self._late_bytes + sum(len(frame) for frame in self._frames)
        if kept > INPUT_BYTES_HELD_MAX:
            self._held_back = True
            self._transport.pause_reading()
        elif self._held_back:
            self._held_back = False
            if self._reading and not self._closing:
                self._transport.resume_reading()

    # -- frames ------------------------------------------------------------------------------------

    def _cut(self, data: bytes) -> None:
        """Split input into frames, and process them."""
        if not self._has_frames:
            super().data_received(data)
            return
        whole = self._rest + data
        end = 0
        if not self._begun_input:
            if len(whole) < len(PROTOCOL_HEADER):
                self._rest = whole
                return
            self._begun_input = True
            self._has_frames = whole.startswith(PROTOCOL_HEADER)
            end = len(PROTOCOL_HEADER) if self._has_frames else len(whole)
            super().data_received(whole[:end])
        while len(whole) - end >= FRAME_HEAD_BYTES:
            size = int.from_bytes(whole[end + 3 : end + 7], "big") + FRAME_HEAD_BYTES + 1
            if size > self.connection.settings.frame_bytes_max:
                # The session rejects a frame of this size, and reports the error.
                self._has_frames = False
                size = len(whole) - end
            elif len(whole) - end < size:
                break
            self._frames.append(whole[end : end + size])
            end += size
        self._rest = whole[end:]
        self._take_frames()

    def _take_frames(self) -> None:
        """Pass frames to the session, or answer them here; pass many at once if possible."""
        frames = self._frames
        if not self._traffic.looks_at_methods and not self._contents:
            block = b"".join(frames)
            frames.clear()
            if block:
                super().data_received(block)
            return
        while frames:
            if self._is_concerned(frames[0]):
                if self.connection.halted or self.connection.reader.held():
                    self._wait()
                    return
                if self._take_away(frames[0]):
                    frames.popleft()
                    continue
            super().data_received(frames.popleft())

    def _is_concerned(self, frame: bytes) -> bool:
        """Return whether a frame may have to be intercepted."""
        if int.from_bytes(frame[1:3], "big") in self._contents:
            return True
        if frame[0] != FRAME_METHOD:
            return False
        ids = int.from_bytes(frame[7:11], "big")
        nacks = ids == BASIC_PUBLISH and self._traffic.nacks_left > 0
        return nacks or self._traffic.wants(ids)

    def _take_away(self, frame: bytes) -> bool:
        """Intercept a frame if a fault applies to it; return whether it was intercepted."""
        connection = self.connection
        number = int.from_bytes(frame[1:3], "big")
        if connection.state >= CLOSING:
            return False
        if number in self._contents:
            self._take_content(number, frame)
            return True
        channel = connection.channels.by_number.get(number)
        if channel is not None and channel.closing:
            return False
        ids = int.from_bytes(frame[7:11], "big")
        if self._traffic.wants(ids):
            error = self._traffic.take_refusal(ids)
            if ids == BASIC_PUBLISH:
                self._contents[number] = _Content(error)
            else:
                self._answer(number, error)
            return True
        if channel is None or channel.mode != CONFIRM:
            return False
        self._traffic.nacks_left -= 1
        self._contents[number] = _Content(None)
        return True

    def _take_content(self, number: int, frame: bytes) -> None:
        """Drop a frame of an intercepted publish; answer the publish after its last frame."""
        content = self._contents[number]
        if frame[0] == FRAME_HEADER:
            content.body_left = int.from_bytes(frame[11:19], "big")
        elif frame[0] == FRAME_BODY:
            content.body_left -= len(frame) - FRAME_HEAD_BYTES - 1
        if content.body_left == 0:
            del self._contents[number]
            self._answer(number, content.error)

    def _answer(self, number: int, error: AmqpError | None) -> None:
        """Answer an intercepted method on a channel with an error, or with basic.nack."""
        connection: AmqpConnection = self.connection
        self._runner.now()
        channel = connection.channels.by_number.get(number)
        if isinstance(error, SoftError) and channel is not None:
            connection.fail_channel(number, error)
        elif error is not None:
            connection.close(error)
        elif channel is not None:
            channel.confirms.count(REJECTED)
            connection.channels.write_confirms()
        connection.wake()
        self._runner.run()
