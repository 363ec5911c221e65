"""A connection in the client role, sans-IO: bytes into `receive`, events and output bytes out.

This is the engine of both shells.  It opens no socket, reads no clock (`tick` receives the time)
and never waits.  It does not reconnect: the caller creates a new session for each connection.  With
a `memory`, channels continue on the next session (`recovery`).

Invariants: `receive` never raises because of input; a fault closes the channel or the connection
with its reply code and is reported as an event; `ConnectionEnded` is reported exactly once, after
the `ChannelEnded` of every channel; `Lost` replaces it if the connection is to be recovered.
"""

from __future__ import annotations

import heapq
import platform
from typing import TYPE_CHECKING, Final

from leveret import __version__
from leveret.client.errors import Closed, ConnectionLost, NoFreeChannel
from leveret.client.events import Blocked, ConnectionEnded, Lost, Opened, Replied, Unblocked
from leveret.client.session.channel import ChannelSession
from leveret.client.session.intake import Intake
from leveret.client.session.memory import ChannelMemory, ConnectionMemory
from leveret.client.session.output import ClientOutput, reply_text
from leveret.client.session.states import CONNECTION, ChannelState, ConnectionState
from leveret.errors import (
    AccessRefusedHard,
    ChannelFault,
    CommandInvalid,
    ConnectionForced,
    FrameError,
    HardError,
    InternalError,
    NotAllowed,
    NotImplementedFault,
    ResourceFault,
    SoftError,
    UnexpectedFrame,
    error_for,
)
from leveret.limits import FRAME_BYTES_MAX, FRAME_BYTES_MIN, HEARTBEAT_SECONDS
from leveret.wire.content.deliveries import DeliveryScanner
from leveret.wire.content.publish_marks import SESSION_PROPERTY
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FrameReader,
)
from leveret.wire.methods import decode_method
from leveret.wire.methods.connection import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.events import ChannelOwner, Event, Token
    from leveret.client.session.kept import KeptPublishes, SentPiece
    from leveret.client.uri import Parameters
    from leveret.wire.method import Method

#: The capabilities of this client; a broker uses only the extensions listed here.
CAPABILITIES: Final[dict[str, bool]] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}

#: Channel numbers have 16 bits, and 0 is the connection.
_CHANNEL_MAX: Final = 65_535

#: Ticks per heartbeat interval, so that heartbeats are sent in time.
_TICKS_PER_HEARTBEAT: Final = 4

#: Heartbeat intervals without input after which the connection is lost (AMQP 0-9-1 section 4.2.7).
_SILENT_HEARTBEATS_MAX: Final = 2

#: A broker that does not support this protocol version answers with another protocol header.
_PROTOCOL_HEADER_BYTES: Final = 8

#: The first byte of a TLS alert; no AMQP frame begins with it.
_TLS_ALERT: Final = b"\x15"


class ClientConnection:
    """One connection, with the login in `parameters`; `now_ms` is a monotonic time in ms."""

    def __init__(
        self,
        parameters: Parameters,
        now_ms: int,
        properties: Mapping[str, object] | None = None,
        memory: ConnectionMemory | None = None,
    ) -> None:
        self.parameters = parameters
        self.memory = memory
        self.state = ConnectionState.STARTING
        self.error: Exception | None = None
        self.server_properties: dict[str, object] = {}
        self.channel_max = _CHANNEL_MAX
        self.heartbeat_seconds = 0
        self.channels: dict[int, ChannelSession] = {}
        self._properties = client_properties() | dict(properties or {})
        self._reader = FrameReader()
        self._reader.frame_max = FRAME_BYTES_MAX
        self._intake = Intake()
        self._output = ClientOutput()
        self._output.start()
        self._pending: list[tuple[Method, Token]] = []
        self._first: bytes | None = b""  # None once the first byte has identified the protocol
        self._numbers_free: list[int] = []
        self._number_next = 1
        self._ended = False
        self._was_open = False
        #: Decodes the deliveries of one channel into columns, without creating messages.
        self.scanner: DeliveryScanner | None = None
        self._heard = False
        self._heard_ms = self._sent_ms = self._ticked_ms = now_ms

    @property
    def frame_max(self) -> int:
        """The largest frame that either side sends, in bytes."""
        return self._output.frame_max

    @property
    def output_bytes(self) -> int:
        """The number of bytes that `data_to_send` would return."""
        return len(self._output)

    @property
    def is_leveret(self) -> bool:
        """Whether the broker is Leveret, which may report another product name."""
        names = [self.server_properties.get(key) for key in ("product", "platform")]
        return any(isinstance(name, str) and name.startswith("Leveret") for name in names)

    @property
    def _tells_keys(self) -> bool:
        """Whether to open channels with keys, so that the broker reports on lost channels."""
        return self.memory is not None and self.memory.publish_session != "" and self.is_leveret

    @property
    def awaits_reply(self) -> bool:
        """Whether any request or publish is still unanswered."""
        if self.state is not ConnectionState.OPEN or self._pending:
            return True
        return any(channel.awaits_reply for channel in self.channels.values())

    # -- requests of the application ---------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return and clear the bytes to be sent now.

        With a memory, bytes with publishes in confirm mode are also stored until confirmed.
        """
        data = self._output.take()
        publishing = self._output.take_publishing()
        if publishing and self.memory is not None:
            self._keep(data, publishing, self.memory.kept)
        return data

    def _keep(self, data: bytes, publishing: list[int], kept: KeptPublishes) -> None:
        """Store output with publishes on some channels until they are confirmed."""
        piece: SentPiece | None = None
        for number in publishing:
            channel = self.channels.get(number)
            if channel is not None and channel.keeps_publishes:
                piece = piece or kept.keep(data)
                channel.keep(piece)

    def open_channel(
        self, owner: ChannelOwner, token: Token, memory: ChannelMemory | None = None
    ) -> ChannelSession:
        """Open a channel on the lowest free number; the reporting event will contain `token`.

        `memory` is the state of a channel to restore, or None for a new channel.

        Raises: the connection's error when it has ended; NoFreeChannel.
        """
        self.check_open()
        if self._numbers_free:
            number = heapq.heappop(self._numbers_free)
        elif self._number_next <= self.channel_max:
            number = self._number_next
            self._number_next += 1
        else:
            raise NoFreeChannel(f"all {self.channel_max} negotiated channels are open")
        if memory is None and self.memory is not None and not token.is_internal:
            memory = ChannelMemory(self.memory, owner)
        channel = ChannelSession(number, self._output, owner, token, memory, self._tells_keys)
        self.channels[number] = channel
        return channel

    def request(self, method: Method, token: Token) -> None:
        """Send a connection method that expects a reply; `Replied` will contain `token`.

        Raises: the connection's error when it has ended; ValueError for an invalid argument.
        """
        self.check_open()
        self._output.send(0, method)
        self._pending.append((method, token))

    def close(self, code: int = 200, text: str = "") -> None:
        """Begin to close, unless closing or closed; `ConnectionEnded` reports the end."""
        if self.state in {ConnectionState.CLOSING, ConnectionState.CLOSED}:
            return
        if self.state is not ConnectionState.STARTING:
            self._send_close(code, text)
        self.state = ConnectionState.CLOSING
        for channel in self.channels.values():
            channel.discard()

    def check_open(self) -> None:
        """Raise the connection's error unless it is open."""
        if self.state is not ConnectionState.OPEN:
            if self.error is not None:
                raise self.error.with_traceback(None)
            raise Closed(f"the connection {self.state.value}")

    # -- input from the broker ---------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Handle bytes from the broker and return the events."""
        events: list[Event] = []
        if self.state is ConnectionState.CLOSED:
            return events
        self._heard = True
        try:
            if self._first is not None:
                data = self._check_version(self._first + data)
            self._reader.feed(data)
            self._frames(events)
        except (HardError, SoftError) as error:
            # A SoftError here is caused by a channel method on channel 0.
            self._fail(error, events)
        return events

    def lost(self, reason: str) -> list[Event]:
        """Handle the loss of the socket and return the events."""
        events: list[Event] = []
        if self.state is ConnectionState.CLOSING:
            self._end(None, events)
        elif self.state is ConnectionState.TUNING:
            self._end(
                ConnectionLost(f"{reason} during the login (wrong user or password?)"), events
            )
        else:
            self._end(ConnectionLost(reason), events)
        return events

    def abort(self, error: Exception) -> list[Event]:
        """End the connection because of an error on this side."""
        events: list[Event] = []
        if self.state is ConnectionState.OPEN:
            self._send_close(ResourceFault.code, str(error))
        self._end(error, events)
        return events

    def _frames(self, events: list[Event]) -> None:
        """Handle every whole frame.  Raises: HardError."""
        reader = self._reader
        channels = self.channels
        while self.state is not ConnectionState.CLOSED:
            if self.scanner is not None:
                self._scan(self.scanner, events)
            elif self._take_deliveries(events):
                continue
            if not reader.next():
                return
            kind = reader.kind
            number = reader.channel
            channel = channels.get(number)
            if channel is None:
                self._other_frame(kind, number, events)
                continue
            try:
                if kind == FRAME_METHOD:
                    method = decode_method(reader.data, reader.start, reader.end)
                    channel.on_method(method, events)
                elif kind == FRAME_HEADER:
                    channel.on_header(reader.data, reader.start, reader.end, events)
                elif kind == FRAME_BODY:
                    channel.on_body(reader.data, reader.start, reader.end, events)
                else:
                    raise UnexpectedFrame(f"a heartbeat on channel {number}")
            except SoftError as error:
                channel.fail(error, events)
            if channel.state is ChannelState.CLOSED:
                self._free(channel)

    def _take_deliveries(self, events: list[Event]) -> bool:
        """Report the next whole deliveries; return False if other input comes next."""
        channel = self.channels.get(self._intake.channel(self._reader))
        return channel is not None and channel.take_deliveries(self._intake, self._reader, events)

    def _scan(self, scanner: DeliveryScanner, events: list[Event]) -> None:
        """Decode the next deliveries into columns.  Raises: HardError."""
        try:
            scanner.take(self._reader)
        except SoftError as error:
            self.scanner = None
            self.channels[scanner.channel].fail(error, events)

    def _other_frame(self, kind: int, number: int, events: list[Event]) -> None:
        """Handle a frame on channel 0, or on a channel that is not open.  Raises: HardError."""
        if number != 0:
            if self.state is not ConnectionState.CLOSING:
                raise ChannelFault(f"a frame for channel {number}, which is not open")
        elif kind == FRAME_METHOD:
            reader = self._reader
            self._on_method(decode_method(reader.data, reader.start, reader.end), events)
        elif kind != FRAME_HEARTBEAT:
            raise UnexpectedFrame("content on channel 0")

    def _check_version(self, data: bytes) -> bytes:
        """Check that the broker's first bytes are AMQP; return the bytes to decode now.

        A broker refuses our version by another protocol header.  A TLS port answers with a TLS
        alert.

        Raises: FrameError (501).
        """
        if data[:1] == _TLS_ALERT:
            raise FrameError(
                "the broker answers with TLS: use amqps:// (or tls=True), or the port without TLS, "
                "which is usually 5672"
            )
        if data[:1] not in {b"", b"A"}:
            self._first = None
            return data
        if len(data) >= _PROTOCOL_HEADER_BYTES:
            header = data[:_PROTOCOL_HEADER_BYTES]
            raise FrameError(f"the broker speaks another protocol: {header!r}")
        self._first = data
        return b""

    def _on_method(self, method: Method, events: list[Event]) -> None:
        """Handle a method on channel 0.  Raises: HardError."""
        state = CONNECTION[self.state].get(type(method))
        if state is None:
            if self.state is not ConnectionState.CLOSING:
                self._on_reply(method, events)
            return
        self.state = state
        if isinstance(method, ConnectionClose):
            self._output.send(0, ConnectionCloseOk())
            if state is ConnectionState.CLOSED:
                code, text = method.reply_code, method.reply_text
                self._end(error_for(code, text, False, method.class_id, method.method_id), events)
        elif isinstance(method, ConnectionCloseOk):
            self._end(None, events)
        elif isinstance(method, ConnectionBlocked):
            events.append(Blocked(method.reason))
        elif isinstance(method, ConnectionUnblocked):
            events.append(Unblocked())
        else:
            self._on_handshake(method, events)

    def _on_reply(self, method: Method, events: list[Event]) -> None:
        """Match a reply with the oldest request.  Raises: CommandInvalid (503)."""
        if not self._pending or method.NAME not in self._pending[0][0].REPLIES:
            raise CommandInvalid(
                f"{method.NAME} on channel 0 while the connection {self.state.value}"
            )
        events.append(Replied(self._pending.pop(0)[1], method))

    # -- the handshake -----------------------------------------------------------------------------

    def _on_handshake(self, method: Method, events: list[Event]) -> None:
        """Handle connection.start, secure, tune or open-ok.  Raises: HardError."""
        if isinstance(method, ConnectionStart):
            self._on_start(method)
        elif isinstance(method, ConnectionTune):
            self._on_tune(method)
        elif isinstance(method, ConnectionOpenOk):
            self._was_open = True
            events.append(Opened())
        else:
            raise NotImplementedFault("the PLAIN mechanism has no challenge")

    def _on_start(self, method: ConnectionStart) -> None:
        """Log in.  Raises: CommandInvalid (503), AccessRefusedHard (403)."""
        version = (method.version_major, method.version_minor)
        if version != (0, 9):
            raise CommandInvalid(f"the broker speaks AMQP {version[0]}-{version[1]}, not 0-9-1")
        mechanisms = method.mechanisms.split()
        if b"PLAIN" not in mechanisms:
            offered = method.mechanisms.decode("ascii", "replace")
            raise AccessRefusedHard(f"the broker offers only {offered!r}, not PLAIN")
        self.server_properties = method.server_properties
        user, password = self.parameters.username, self.parameters.password
        properties = self._properties
        if self._tells_keys:
            assert self.memory is not None
            properties = properties | {SESSION_PROPERTY: self.memory.publish_session}
        start_ok = ConnectionStartOk(
            client_properties=properties,
            mechanism="PLAIN",
            response=f"\0{user}\0{password}".encode(),
            locale="en_US",
        )
        self._output.send(0, start_ok)

    def _on_tune(self, method: ConnectionTune) -> None:
        """Negotiate limits: the lower of both, and 0 for no limit.  Raises: NotAllowed (530)."""
        asked = self.parameters
        self.channel_max = _lower(method.channel_max, asked.channel_max, _CHANNEL_MAX)
        frame_max = _lower(method.frame_max, asked.frame_max, FRAME_BYTES_MAX)
        if frame_max < FRAME_BYTES_MIN:
            raise NotAllowed(f"a frame_max of {frame_max} bytes; the minimum is {FRAME_BYTES_MIN}")
        self._output.frame_max = frame_max
        self._reader.frame_max = frame_max
        self.heartbeat_seconds = 0
        if asked.heartbeat_seconds != 0:
            self.heartbeat_seconds = _lower(
                method.heartbeat, asked.heartbeat_seconds, HEARTBEAT_SECONDS
            )
        tune_ok = ConnectionTuneOk(
            channel_max=self.channel_max,
            frame_max=frame_max,
            heartbeat=self.heartbeat_seconds,
        )
        self._output.send(0, tune_ok)
        self._output.send(0, ConnectionOpen(virtual_host=asked.vhost))

    # -- heartbeats --------------------------------------------------------------------------------

    def next_tick_ms(self) -> int | None:
        """Return the time at which `tick` is due, or None if heartbeats are disabled."""
        if self.heartbeat_seconds == 0 or self.state is ConnectionState.CLOSED:
            return None
        return self._ticked_ms + self.heartbeat_seconds * 1000 // _TICKS_PER_HEARTBEAT

    def tick(self, now_ms: int, reading: bool = True) -> list[Event]:
        """Send a heartbeat if it is due; end the connection if the peer was silent for too long.

        `reading` is False while the shell does not read; that time does not count as silence.
        """
        events: list[Event] = []
        interval_ms = self.heartbeat_seconds * 1000
        self._ticked_ms = now_ms
        if interval_ms == 0 or self.state is ConnectionState.CLOSED:
            return events
        if self._heard or not reading:
            self._heard = False
            self._heard_ms = now_ms
        if self._output.sent:
            self._output.sent = False
            self._sent_ms = now_ms
        if now_ms - self._heard_ms >= _SILENT_HEARTBEATS_MAX * interval_ms:
            silent_ms = now_ms - self._heard_ms
            self._end(ConnectionLost(f"no data from the broker for {silent_ms} ms"), events)
        elif now_ms - self._sent_ms >= interval_ms // 2:
            self._sent_ms = now_ms
            self._output.heartbeat()
        return events

    # -- the end -----------------------------------------------------------------------------------

    def _free(self, channel: ChannelSession) -> None:
        """Free the number of an ended channel."""
        del self.channels[channel.number]
        if self.scanner is not None and self.scanner.channel == channel.number:
            self.scanner = None
        heapq.heappush(self._numbers_free, channel.number)

    def _fail(self, error: HardError | SoftError, events: list[Event]) -> None:
        """End the connection because of an error in the broker's input; try to send a close."""
        if self.state not in {ConnectionState.STARTING, ConnectionState.CLOSING}:
            self._send_close(error.code, error.reply_text, error.class_id, error.method_id)
        self._end(error, events)

    def _send_close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Send connection.close."""
        close = ConnectionClose(
            reply_code=code, reply_text=reply_text(text), class_id=class_id, method_id=method_id
        )
        self._output.send(0, close)

    def _end(self, error: Exception | None, events: list[Event]) -> None:
        """Report the end of every channel and of the connection, once."""
        self.state = ConnectionState.CLOSED
        if self._ended:
            return
        self._ended = True
        self.error = error
        is_lost = error is not None and self._is_lost(error)
        if is_lost:
            self.data_to_send()  # stores publishes that are not sent yet
        channels = list(self.channels.values())
        self.channels.clear()
        tokens = tuple(token for _, token in self._pending)
        self._pending.clear()
        if error is not None and is_lost:
            for channel in channels:
                self._lose(channel, error, events)
            events.append(Lost(error, tokens))
            return
        for channel in channels:
            channel.end(error, events)
        events.append(ConnectionEnded(error, tokens))

    def _is_lost(self, error: Exception) -> bool:
        """Return whether the connection is to be recovered, and record it."""
        memory = self.memory
        if memory is None or not self._was_open:
            return False
        memory.is_recovering = memory.is_recovering or is_recoverable(error)
        return memory.is_recovering

    def _lose(self, channel: ChannelSession, error: Exception, events: list[Event]) -> None:
        """Suspend a channel until the next connection, or end it."""
        if channel.recovers and not self._scans(channel):
            channel.suspend(error)
            return
        if channel.memory is not None and channel.error is None:
            channel.memory.ended()  # the channel must not be reopened
        if channel.state is ChannelState.CLOSING:
            channel.end(None, events)
        else:
            channel.end(error, events)

    def _scans(self, channel: ChannelSession) -> bool:
        """Return whether deliveries of a channel are decoded into columns."""
        return self.scanner is not None and self.scanner.channel == channel.number


def is_recoverable(error: Exception | None) -> bool:
    """Return whether reconnecting may help after `error`.

    It may if the socket, the peer or its heartbeats failed, or if the broker closed the connection
    because it is stopping (320) or has failed (541).  Other errors would recur on a new connection.
    """
    return isinstance(error, (ConnectionLost, ConnectionForced, InternalError))


def client_properties() -> dict[str, object]:
    """Return the client properties sent to the broker."""
    return {
        "product": "Leveret",
        "version": __version__,
        "platform": f"Python {platform.python_version()}",
        "information": "Leveret's client for Python",
        "capabilities": dict(CAPABILITIES),
    }


def _lower(offered: int, asked: int | None, unlimited: int) -> int:
    """Return the lower of the limits that are not 0 or None; `unlimited` if none is set."""
    limits = [limit for limit in (offered, asked or 0) if limit > 0]
    return min(limits, default=unlimited)
