"""An AMQP 0-9-1 connection as a state machine, from its first byte to its last.

`receive` takes input, `take_output` returns output, and the shell around it owns the socket and the
clock.  A *halted* connection does not parse its input until the sync that a reply depends on is
done, the output has room, or an alarm is over.  Input is always handled in order.

Channels, publishing, handshake, heartbeat and closing are separate objects; `FrameInput` dispatches
frames to them, and `states` has the table of states.  With its bases the class is longer than
others, because it is the whole interface of a connection to the shell, the broker and these
objects; most of its methods only pass a call on.

Invariants: once `state` is CLOSED, nothing is parsed or written.  A soft error closes one channel,
a hard error the connection.  No AmqpError stops the broker.  Any other exception closes the
connection with 541 if the current method has not changed anything; otherwise it propagates to the
shell, and the broker must stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import DeliveryChannel
from leveret.broker.counters import LinkCounts
from leveret.broker.scheduler.accounts import UNACKED_BYTES
from leveret.broker.scheduler.costs import METHOD
from leveret.broker.scheduler.task import SYNC
from leveret.errors import (
    AmqpError,
    ConnectionForced,
    FrameError,
    InternalError,
    SoftError,
    in_plain_words,
)
from leveret.limits import OUTPUT_BYTES_MAX, TABLE_BYTES_PER_COST
from leveret.session.channel.channels import Channels
from leveret.session.channel.release import close_channel, release_channel
from leveret.session.connection.closing import Closing
from leveret.session.connection.frame_input import FrameInput
from leveret.session.connection.handshake import Handshake
from leveret.session.connection.heartbeat import Heartbeat
from leveret.session.connection.other_protocols import spoken_by
from leveret.session.connection_base import ConnectionBase
from leveret.session.publish.publisher import Publisher
from leveret.session.states import (
    AWAITING_HEADER,
    AWAITING_OPEN,
    AWAITING_TUNE_OK,
    CLOSED,
    CLOSING,
    HALT_ALARM,
    HALT_OUTPUT,
    HALT_SYNC,
    OPEN,
    VERIFYING_LOGIN,
)
from leveret.wire.frames import FRAME_BODY, PROTOCOL_HEADER
from leveret.wire.methods import (
    ChannelClose,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
)

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.session.authentication import Authenticator
from leveret.session.settings import Peer, SessionSettings, Tokens


@final
class AmqpConnection(ConnectionBase):
    """A client connection."""

    def __init__(
        self,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        tokens: Tokens,
        peer: Peer,
        now_ms: i64,
    ) -> None:
        super().__init__(broker, settings, tokens, peer, now_ms)
        self.core.limit_acks(settings.consumer_timeout_ms)
        #: True from connection.blocked to connection.unblocked.
        self._blocked = False
        self.channels = Channels(self)
        self.publisher = Publisher(self, self.channels)
        self.heartbeat = Heartbeat(self)
        self.closing = Closing(self)
        self.handshake = Handshake(self, authenticator, self.heartbeat, self.closing)
        self._input = FrameInput(self, self.channels, self.publisher, self.handshake, self.closing)
        broker.links[self] = None

    # -- input ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Handle bytes from the peer; `now_ms` is monotonic."""
        self.heartbeat.input_ms = now_ms
        self.count_input(data, now_ms)
        if self.state == CLOSED:
            return
        if self.closing.scans:
            self.closing.scan(data)
            return
        self.reader.feed(data)
        if self.halted == 0:
            self.run()
        else:
            self.account.hold_input(self.reader.memory())

    def run(self) -> None:
        """Parse the input until it is used up or the connection is halted."""
        if self.halted == 0:
            self.begin_slice()
        while self.halted == 0 and self.state != CLOSED and not self.closing.scans:
            self.current.begin(self.published)
            try:
                if self.state == AWAITING_HEADER and not self._take_protocol_header():
                    break
                self._take_frames()
                break
            except AmqpError as error:
                self._fail(error)
            except Exception as bug:
                # Not named `error`: in mypyc a name has one type per function.
                if not self.survives(bug):
                    raise
                # Earlier methods are complete, and this one has not changed anything.
                fault = InternalError("see the broker's log")
                self._name_method(fault)
                self.start(self._fail_when_confirmed(fault))
        self.channels.write_confirms()
        memory = self.reader.memory()
        if memory != self.account.input_bytes:
            self.account.hold_input(memory)

    def _fail_when_confirmed(self, fault: InternalError) -> Iterator[int]:
        """Close with 541, after confirming earlier publishes as usual."""
        while (group := self.channels.unsynced_group()) > 0:
            self.core.syncs.reply_group = group
            yield SYNC
            if self.state >= CLOSING:
                return
        self._fail(fault)

    def _take_protocol_header(self) -> bool:
        """Check the protocol header; return whether frames follow.

        Answer any other header, and end the connection (behaviour 1: protocol header).
        """
        reader = self.reader
        start = reader.data[:8]
        if len(start) < 8:
            return False
        if start == PROTOCOL_HEADER:
            reader.position = 8
            self.handshake.start()
            return True
        spoken = spoken_by(reader.data)
        http_port = int(self.settings.http_port)
        self.log.append(("warning", spoken.log_line(http_port, int(self.settings.tls_port))))
        self.output.writer.write(spoken.answer(http_port))
        self.finish()
        return False

    def _take_frames(self) -> None:
        reader = self.reader
        output = self.output
        while self.halted == 0 and self.state != CLOSED:
            if self.state == OPEN:
                before = self.published
                self.publisher.take_whole()
                self.spend(self.published - before)
                if self.halted != 0:
                    return
            self.current.begin(self.published)
            if not reader.next():
                return
            # Counted before `take`, because reading a refused frame costs as much.
            self.core.scheduler.spent += METHOD
            if reader.kind != FRAME_BODY:
                self.core.scheduler.spent += (reader.end - reader.start) // TABLE_BYTES_PER_COST
            self._input.take(reader.kind, reader.channel, reader.start, reader.end)
            self.check_slice()
            if len(output.writer) + output.parts_bytes > OUTPUT_BYTES_MAX:
                self.halt(HALT_OUTPUT)
                self.wake()

    # -- output -----------------------------------------------------------------------------------

    def synced(self, group: i64) -> None:
        """Write the held reply and resume parsing."""
        if self.state == CLOSED:
            return
        self.write_held()
        self.resume(HALT_SYNC)

    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order."""
        parts = self.output.take()
        if parts:
            self.heartbeat.output_ms = self.now_ms
            self.count_output(parts)
        return parts

    def resume_deliveries(self) -> None:
        """Schedule the queues of all consumers, because the output has room for deliveries."""
        self.channels.resume_deliveries()

    def delivered(self) -> None:
        """Start the ack timeouts of the deliveries just written."""
        if self.unacked.bytes > 0:
            self.channels.acks.delivered()

    # -- calls of the broker and the shell ---------------------------------------------------------

    def check_consumers(self) -> Iterator[int]:
        """Cancel the consumers of queues that the user may no longer read.

        Their unacked messages stay unacked, as after a cancel by the client.
        """
        return self.channels.check_consumers()

    def open_channels(self) -> list[DeliveryChannel]:
        """Return the open channels."""
        return list(self.channels.by_number.values())

    def channel_count(self) -> i64:
        """Return the number of open channels."""
        return len(self.channels.by_number)

    def publisher_blocked(self) -> None:
        """Send connection.blocked, and halt as soon as possible, after a publish during an alarm.

        In the middle of a message or a transaction, parsing continues to its end, because otherwise
        its memory could keep the alarm on forever.  The bytes accepted despite the alarm are
        limited (`Broker.is_overfull`).  On a full disk they are not confirmed until there is space.

        Raises: ResourceFault (506) as `check_memory`.
        """
        if self.capabilities.blocked and not self._blocked:
            self._blocked = True
            self.send(0, ConnectionBlocked(self.broker.blocked_reason))
        if self.assembling_bytes == 0:
            self.halt(HALT_ALARM)
        else:
            self.check_memory()

    def alarm(self, blocked: bool, reason: str) -> None:
        """Send connection.unblocked and resume when the alarm is over (behaviour 16: alarms)."""
        if self._blocked and not blocked and self.state == OPEN:
            self._blocked = False
            self.send(0, ConnectionUnblocked())
        super().alarm(blocked, reason)

    def input_bytes_held(self) -> int:
        """Return the number of unparsed bytes of input."""
        return self.reader.held()

    def is_authenticated(self) -> bool:
        """Return whether the client has logged in and opened a vhost."""
        return self.vhost is not None

    def is_authenticating(self) -> bool:
        """Return whether the login is being verified, or the client has yet to open a vhost."""
        return self.state in (VERIFYING_LOGIN, AWAITING_TUNE_OK, AWAITING_OPEN)

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Measure the peer's silence from `now_ms` on, but only while the shell is reading."""
        self.heartbeat.set_reading(reading, now_ms)

    def tick(self, now_ms: i64) -> None:
        """Do periodic work, about once a second; `now_ms` is monotonic."""
        self.now_ms = now_ms
        self.core.scheduler.spent += len(self.channels.by_number) >> 3
        self.reader.trim()
        self.output.trim()
        self.account.hold_input(self.reader.memory())
        self.account.hold_growing(self.channels.unacked_count() * UNACKED_BYTES)
        if self.state == CLOSING:
            self.closing.tick(now_ms)
        elif self.state < OPEN:
            self.handshake.tick(now_ms)
        elif self.state == OPEN:
            self.settle_unacked()
            self.publisher.cache.forget_stale()
            if self.core.consumer_timeout_ms_min > 0 and self.unacked.bytes > 0:
                self.channels.acks.due(self.core.now_ms)
            self.heartbeat.tick(now_ms)

    def resumed(self) -> None:
        """Send a heartbeat now, because the client may time out after the process was suspended."""
        if self.state == OPEN:
            self.heartbeat.send()

    # -- the end ----------------------------------------------------------------------------------

    def fail_channel(self, number: i64, error: AmqpError) -> None:
        """Close a channel with an error that was not caused by a method of the client."""
        self.current.method(number, 0)
        self._fail(error)

    def _name_method(self, error: AmqpError) -> None:
        """Set the class and method ids of an error to those of the current method."""
        error.class_id = int(self.current.ids >> 16)
        error.method_id = int(self.current.ids & 0xFFFF)

    def operation_failed(self, error: AmqpError) -> None:
        """Close the channel or the connection, as if the operation had failed at once.

        Do nothing if the channel or the connection has closed since.
        """
        number = self.current.channel
        channel = self.channels.by_number.get(number)
        awaited = number == 0 or (channel is not None and not channel.closing)
        if self.state == OPEN and (awaited or not isinstance(error, SoftError)):
            self._fail(error)

    def _fail(self, error: AmqpError) -> None:
        """Close the channel (soft error) or the connection (hard error)."""
        if not self.settings.compatible:
            error.text = in_plain_words(error.text)
        if error.class_id == 0:
            self._name_method(error)
        channel = self.channels.by_number.get(self.current.channel)
        if isinstance(error, SoftError) and channel is not None and not channel.closing:
            self.log.append(("error", f"channel {channel.number}: {error}"))
            channel.confirms.write()
            close = ChannelClose(error.code, error.short_text, error.class_id, error.method_id)
            self.start(close_channel(channel, close))
            return
        self.close(error)

    def close(self, error: AmqpError) -> None:
        """Close the connection with the code of `error`, and begin to release its resources."""
        if self.state >= CLOSING:
            # The malformed frame stays in the input, so parsing would fail again and again.
            self.closing.stop_parsing()
            return
        level = "info" if isinstance(error, ConnectionForced) else "error"
        self.log.append((level, str(error)))
        self.channels.write_confirms()
        self.release(False)
        self.held_reply = b""
        self.closing.begin(
            ConnectionClose(error.code, error.short_text, error.class_id, error.method_id)
        )
        if isinstance(error, FrameError):
            self.closing.stop_parsing()

    def force(self, text: str) -> None:
        """Close the connection (320) for the operator or a shutdown."""
        if self.state < OPEN:
            self.finish()
        elif self.state != CLOSED:
            self.close(ConnectionForced(text))

    def superseded(self) -> None:
        """End the connection because its client has reconnected to resume its publishes."""
        self.log.append(("warning", "the client lost this connection and has opened another"))
        self.finish()

    def finish(self) -> None:
        """End the connection; the shell closes the socket once the output is flushed."""
        super().finish()
        self.advance(CLOSED)

    def add_counts(self, counts: LinkCounts) -> None:
        """Add the counters of the connection and its channels to `counts`."""
        super().add_counts(counts)
        for channel in self.channels.by_number.values():
            channel.confirms.add_counts(counts)

    def lost(self) -> None:
        """End the connection because its socket is lost."""
        if self.state == OPEN and not self.released:
            self.log.append(("warning", "client unexpectedly closed TCP connection"))
        self.release(False)
        self.advance(CLOSED)
        self.reader.forget()
        self.output.take()
        self.has_no_socket()

    def answer_close(self) -> None:
        """Answer the client's connection.close, and end the connection."""
        if self.state != CLOSED:
            self.send(0, ConnectionCloseOk())
            self.finish()

    def end_channels(self) -> list[Iterator[int]]:
        """Forget channels and cached routes; return the operations that release the channels."""
        self.publisher.cache.forget()
        channels = self.channels.end()
        if self.publish_session is not None:
            self.publish_session.lost(self)
        return [release_channel(channel) for channel in channels]

    def untie(self) -> None:
        """Free the parts, and share those of an ended connection that the broker keeps for this."""
        self.vhost = None
        ended = self.broker.ended_links.setdefault("amqp", self)
        assert isinstance(ended, AmqpConnection)
        self.channels = ended.channels
        self.publisher = ended.publisher
        self.heartbeat = ended.heartbeat
        self.closing = ended.closing
        self.handshake = ended.handshake
        self._input = ended._input  # noqa: SLF001 (of the same class)
