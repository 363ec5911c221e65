"""A client connection from its first byte to its last, as a state machine.

`receive` takes bytes; `take_output` gives bytes; the shell around it owns the socket and the
clock.  A connection can be *halted*: it parses no more input until what it waits for has come (a
sync that a reply depends on, room for output, the end of an alarm).  Everything goes on in order.

Invariants: after `state` is CLOSED nothing is parsed or written; a soft error ends one channel, a
hard error the connection.  No error that is raised on purpose ends the broker.  Any other exception
ends the connection with 541 if what met it had changed nothing; else it comes out of `receive` and
the like as it is, and the broker must not go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.core.turn import Cancels, Link
from leveret.broker.node.access import Access
from leveret.errors import (
    AmqpError,
    ChannelFault,
    ConnectionForced,
    FrameError,
    InternalError,
    SoftError,
    UnexpectedFrame,
    in_plain_words,
)
from leveret.limits import (
    ASSEMBLING_BYTES_MAX,
    FRAME_BYTES_MIN,
    FRAME_OVERHEAD_BYTES,
    OUTPUT_BYTES_HIGH,
    OUTPUT_BYTES_MAX,
    SPILL_BYTES_MAX,
    UNSYNCED_BYTES_MAX,
)
from leveret.session import commands
from leveret.session.channel import content
from leveret.session.connection import (
    alarm,
    closing,
    handshake,
    heartbeat,
    other_protocols,
    rights,
)
from leveret.session.connection.login import renew
from leveret.session.publish.publisher import take_publishes
from leveret.session.publish.route import Route
from leveret.session.states import (
    CLOSED,
    CLOSING,
    HALT_ALARM,
    HALT_COMMIT,
    HALT_LOGIN,
    HALT_OUTPUT,
    HALT_REFUSED,
    HALT_SPILL,
    HALT_SYNC,
    HEADER_NEXT,
    OPEN,
)
from leveret.wire.buffer import BytesWriter, read_i32_be
from leveret.wire.frames import (
    FRAME_BODY,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    PROTOCOL_HEADER,
    FrameReader,
    write_method,
)
from leveret.wire.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUpdateSecret,
    decode_method,
)
from leveret.wire.publish_shape import PUBLISH, PublishShape

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.broker.queue.queue import Queue
    from leveret.broker.vhost.vhost import Vhost
    from leveret.session.channel.channel import Channel
    from leveret.session.settings import Authenticator, Peer, SessionSettings, Tokens
    from leveret.wire.method import Method


class Connection(Link):
    """One client connection."""

    #: What is at hand, for errors.
    fault_class: i64 = 0
    fault_method: i64 = 0
    #: False while the shell does not read the socket: silence means nothing then.
    reading: bool = True
    #: True once the peer seems silent, until it is read from again.
    suspected: bool = False
    #: Bytes of contents that are not complete and of transactions that are not committed.
    assembling_bytes: i64 = 0
    assembling_bytes_max: i64 = ASSEMBLING_BYTES_MAX
    #: When the connection began to close (monotonic ms).
    closing_ms: i64 = 0
    #: How long the answer to a refused login waits, and what it is; None is silence.
    refusal_ms: i64 = 0
    refusal: ConnectionClose | None = None
    # Counters.
    received_bytes: i64 = 0
    sent_bytes: i64 = 0
    published: i64 = 0
    confirms_sent: i64 = 0
    #: The consumers that are told of their queue's end after the reply that waits.
    held_cancels: Cancels | None = None
    #: A fault of ours that closes the connection when the publishes before it are confirmed.
    fault: InternalError | None = None
    #: True for a client that is to hear of messages that were taken before (`ALREADY_TAKEN`).
    known_notify: bool = False
    # How far things had come when the method or publish at hand began; see `_changed`.
    published_before: i64 = 0
    changes_before: i64 = 0
    journal_before: i64 = 0

    def __init__(
        self,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        tokens: Tokens,
        peer: Peer,
        now_ms: i64,
    ) -> None:
        super().__init__(broker.turn, peer.name)
        self.broker = broker
        self.settings = settings
        self.authenticator = authenticator
        self.tokens = tokens
        self.peer = peer
        self.state: i64 = HEADER_NEXT
        self.halted: i64 = 0
        self.reader = FrameReader()
        self.reader.frame_max = FRAME_BYTES_MIN
        self.out = BytesWriter()
        self.parts: list[bytes | memoryview] = []
        self.parts_bytes: i64 = 0
        #: The reply that waits for its sync.
        self.held = b""
        #: True while the transport holds more than it should.
        self.transport_full = False
        #: True after a frame that could not be read: what follows cannot be read either.
        self.deaf = False
        self.listener = closing.Listener()
        #: True when the shell is to close the socket after it flushed.
        self.finished = False
        self.log: list[tuple[str, str]] = []
        # Negotiated.
        self.shape = PublishShape(FRAME_BYTES_MIN, settings.message_bytes_max)
        self.body_bytes_max: i64 = FRAME_BYTES_MIN - FRAME_OVERHEAD_BYTES
        self.frame_bytes_max: i64 = FRAME_BYTES_MIN
        self.channels_max: i64 = settings.channels_max
        self.heartbeat_ms: i64 = 0
        # The client; `access` allows nothing until a vhost is entered.
        self.mechanism = ""
        self.access = Access(broker.users, "", "")
        self.vhost: Vhost | None = None
        self.client_properties: dict[str, object] = {}
        self.cancel_notify = False
        self.blocked_notify = False
        self.told_blocked = False
        # Channels.
        self.channels: dict[i64, Channel] = {}
        self.recent: Channel | None = None
        self.confirming: list[Channel] = []
        self.routes: dict[bytes, Route] = {}
        self.exclusive_queues: list[Queue] = []
        self.fault_channel: Channel | None = None
        # Times (monotonic ms) and counters.
        self.now_ms: i64 = now_ms
        self.connected_ms: i64 = now_ms
        self.connected_at_ms: i64 = broker.turn.now_ms
        self.input_ms: i64 = now_ms
        self.output_ms: i64 = now_ms
        broker.links[self] = None

    # -- input ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Take bytes that the peer sent; `now_ms` is monotonic."""
        self.now_ms = now_ms
        self.input_ms = now_ms
        self.received_bytes += len(data)
        if self.state == CLOSED:
            return
        if self.deaf:
            self._listen(data)
            return
        self.reader.feed(data)
        if self.halted == 0:
            self.run()

    def _listen(self, data: bytes) -> None:
        """Wait for the peer's goodbye in input that is no longer parsed."""
        heard = self.listener.hear(data)
        if heard == closing.CLOSE:
            self.send(0, ConnectionCloseOk())
        if heard != closing.NOTHING:
            self.finish()

    def run(self) -> None:
        """Parse what lies in the input until it ends or the connection is halted."""
        while self.halted == 0 and self.state != CLOSED and not self.deaf:
            self._begin()
            try:
                if self.state == HEADER_NEXT and not self._take_protocol_header():
                    break
                self._take_frames()
                break
            except AmqpError as error:
                self._fail(error)
            except Exception as bug:
                # Not `error` again: to mypyc a name has one type in a function.
                if isinstance(bug, MemoryError) or self._changed():
                    raise
                # All that was asked for before is whole; this left nothing half done.
                self.log.append(("error", f"internal error: {bug!r}"))
                fault = InternalError("the broker's log says more")
                fault.class_id, fault.method_id = int(self.fault_class), int(self.fault_method)
                self._fail_when_answered(fault)
        self._write_confirms()

    def _fail_when_answered(self, fault: InternalError) -> None:
        """Close for a fault of ours, once what came before it is confirmed as if it had not been.

        Until then nothing more is parsed.
        """
        for channel in self.channels.values():
            if channel.unsynced:
                self.fault = fault
                self.halted |= HALT_SYNC
                self.turn.wait(self, channel.unsynced[-1][0])
                return
        self._fail(fault)

    def _begin(self) -> None:
        """Note how far things have come: a frame of the client's is looked at next."""
        turn = self.turn
        self.published_before = self.published
        self.changes_before = turn.changes
        self.journal_before = turn.journal.unsynced_bytes

    def _changed(self) -> bool:
        """Tell whether what is at hand began to change what others see, or wrote to the journal.

        Publishes that lie whole in the input follow each other without `_begin`: they count by
        themselves (`at_fault`), and all that one of them changes comes after its count.
        """
        if self.published != self.published_before:
            return True
        if self.fault_class == 60 and self.fault_method == 40:
            return False
        turn = self.turn
        if turn.changes != self.changes_before or turn.journal.in_tx:
            return True
        return turn.journal.unsynced_bytes != self.journal_before

    def _write_confirms(self) -> None:
        """Tell the publishers what was settled in this batch."""
        if self.confirming:
            for channel in self.confirming:
                channel.write_confirms()
            self.confirming = []
            self.wake()

    def _take_protocol_header(self) -> bool:
        """Judge the first eight bytes (behaviour 1); tell whether frames follow."""
        reader = self.reader
        start = reader.data[:8]
        if len(start) < 8:
            return False
        if start == PROTOCOL_HEADER:
            reader.position = 8
            handshake.start(self)
            return True
        stranger = other_protocols.of(reader.data)
        self.log.append(("warning", stranger.told(int(self.settings.http_port))))
        self.out.write(stranger.answer(int(self.settings.http_port)))
        self.finish()
        return False

    def _take_frames(self) -> None:
        reader = self.reader
        while self.halted == 0 and self.state != CLOSED:
            if self.state == OPEN:
                take_publishes(self)
                if self.halted != 0:
                    return
            self.fault_channel = None
            self.fault_class = 0
            self.fault_method = 0
            self._begin()
            if not reader.next():
                return
            self._frame(reader.kind, reader.channel, reader.start, reader.end)
            if len(self.out) + self.parts_bytes > OUTPUT_BYTES_MAX:
                self.halted |= HALT_OUTPUT
                self.wake()

    def _frame(self, kind: i64, number: i64, start: i64, end: i64) -> None:
        if kind == FRAME_HEARTBEAT:
            if number != 0:
                raise UnexpectedFrame("a heartbeat on a channel")
            return
        if self.state == CLOSING:
            if kind == FRAME_METHOD:
                self._closing_method(start, end)
            return
        if number == 0:
            if kind != FRAME_METHOD:
                raise UnexpectedFrame("content on channel 0")
            self._connection_method(self._method_without_channel(start, end))
            return
        if self.state != OPEN:
            raise UnexpectedFrame("a channel before the connection is open")
        channel = self.channels.get(number)
        if channel is None:
            self._open_channel(kind, number, start, end)
        elif channel.closing:
            self._closing_channel(channel, kind, start, end)
        elif kind == FRAME_METHOD:
            self._channel_method(channel, start, end)
        elif kind == FRAME_HEADER:
            self.at_fault(channel, 60, 40)
            content.header(channel, self.reader.data, start, end)
        elif kind == FRAME_BODY:
            self.at_fault(channel, 60, 40)
            content.body(channel, self.reader.data, start, end)

    def _closing_method(self, start: i64, end: i64) -> None:
        """After our connection.close only a close or its close-ok counts."""
        try:
            method = decode_method(self.reader.data, start, end)
        except AmqpError:
            return
        if isinstance(method, ConnectionClose):
            self.send(0, ConnectionCloseOk())
            self.finish()
        elif isinstance(method, ConnectionCloseOk):
            self.finish()

    def _method_without_channel(self, start: i64, end: i64) -> Method:
        """Return a method on channel 0, or on one that is not open: it names nothing there.

        Raises: ChannelFault (504) for one that does, and names what cannot be.
        """
        try:
            return decode_method(self.reader.data, start, end)
        except SoftError as error:
            text = "a method of another class than connection on a channel that is not open"
            raise ChannelFault(text, error.class_id, error.method_id) from None

    def _connection_method(self, method: Method) -> None:
        self.at_fault(None, method.CLASS_ID, method.METHOD_ID)
        if isinstance(method, ConnectionClose):
            self._write_confirms()
            self.release()
            self.send(0, ConnectionCloseOk())
            self.finish()
        elif self.state < OPEN:
            handshake.step(self, method)
        elif isinstance(method, ConnectionUpdateSecret):
            renew(self)
        else:
            raise ChannelFault(f"{method.NAME} on channel 0 of an open connection")

    def _open_channel(self, kind: i64, number: i64, start: i64, end: i64) -> None:
        """Take the first frame of a channel, which must open it (behaviours 11 and 12)."""
        if kind != FRAME_METHOD:
            raise ChannelFault("expected 'channel.open'")
        method = self._method_without_channel(start, end)
        self.at_fault(None, method.CLASS_ID, method.METHOD_ID)
        if isinstance(method, ChannelCloseOk):
            # Answers a close that crossed the client's own.
            return
        if not isinstance(method, ChannelOpen):
            raise ChannelFault("expected 'channel.open'")
        commands.open_channel(self, number)
        self.send(number, ChannelOpenOk())

    def _closing_channel(self, channel: Channel, kind: i64, start: i64, end: i64) -> None:
        """Drop what comes for a channel that we closed, until the client agrees (behaviour 15)."""
        if kind != FRAME_METHOD or end - start < 4:
            return
        ids = read_i32_be(self.reader.data, start)
        if ids == 20 << 16 | 41:
            self.forget_channel(channel)
        elif ids == 20 << 16 | 40:
            # The client closed at the same time: its close is answered, ours still waits.
            self.send(channel.number, ChannelCloseOk())

    def _channel_method(self, channel: Channel, start: i64, end: i64) -> None:
        data = self.reader.data
        if channel.content_state != 0:
            self.at_fault(channel, 60, 40)
            raise UnexpectedFrame("a method in the middle of content")
        if end - start >= 4 and read_i32_be(data, start) == PUBLISH:
            self.at_fault(channel, 60, 40)
            content.begin(channel, data[start + 4 : end])
            return
        # A name that cannot be is a fault of the channel; it is found when the method is read.
        self.fault_channel = channel
        method = decode_method(data, start, end)
        self.at_fault(channel, method.CLASS_ID, method.METHOD_ID)
        if isinstance(method, ChannelClose):
            # What is settled is told before the close-ok: nothing may follow it on this number.
            channel.write_confirms()
            channel.closing = True
            channel.release()
            self.forget_channel(channel)
            self.send(channel.number, ChannelCloseOk())
            return
        turn = self.turn
        turn.reply_group = 0
        if turn.has_letters():
            # What died earlier in this batch has arrived by now, as far as a method can see.
            turn.bury()
        commands.handle(channel, method)

    def at_fault(self, channel: Channel | None, class_id: i64, method_id: i64) -> None:
        """Note what is being handled, so that an error can name it."""
        self.fault_channel = channel
        self.fault_class = class_id
        self.fault_method = method_id
        self.published_before = self.published

    def forget_channel(self, channel: Channel) -> None:
        """Let the number of a channel be used again."""
        del self.channels[channel.number]
        if self.recent is channel:
            self.recent = None

    def tuned(self, frame_bytes_max: int, channels_max: int, heartbeat_seconds: int) -> None:
        """Take what was negotiated; a payload may be as large as the frame (see `limits`)."""
        self.frame_bytes_max = frame_bytes_max
        if frame_bytes_max == 0:
            self.shape.payload_bytes_max = 0x7FFFFFFF
            self.body_bytes_max = 0x7FFFFFFF
        else:
            self.shape.payload_bytes_max = frame_bytes_max
            self.body_bytes_max = frame_bytes_max - FRAME_OVERHEAD_BYTES
        self.reader.frame_max = frame_bytes_max
        self.channels_max = channels_max if channels_max > 0 else 65_535
        self.heartbeat_ms = heartbeat_seconds * 1000

    # -- output -----------------------------------------------------------------------------------

    def send(self, number: i64, method: Method) -> None:
        """Write a method frame."""
        write_method(self.out, number, method)
        self.wake()

    def reply(self, number: i64, method: Method) -> None:
        """Write the answer to the method at hand, after the sync that it depends on.

        What the method has caused follows it; what others have caused does not wait for it.
        """
        turn = self.turn
        group = turn.reply_group
        if turn.must_wait(group):
            writer = BytesWriter()
            write_method(writer, number, method)
            self.held = writer.getvalue()
            self.halted |= HALT_SYNC
            turn.wait(self, group)
            if turn.cancelled and turn.cancelled_group <= group:
                # They wait by themselves too: this connection may be gone by then.
                self.held_cancels = cancels = turn.take_cancels()
                turn.wait(cancels, group)
        else:
            self.send(number, method)
            turn.tell_cancelled()

    def synced(self, group: i64) -> None:
        """Write the held reply and parse on."""
        if self.state == CLOSED:
            return
        if self.held:
            self.out.write(self.held)
            self.held = b""
        cancels = self.held_cancels
        if cancels is not None:
            self.held_cancels = None
            cancels.tell()
        fault = self.fault
        if fault is not None:
            self.fault = None
            self.halted &= ~HALT_SYNC
            self._fail_when_answered(fault)
            self.wake()
            return
        self.resume(HALT_SYNC)

    def resume(self, halt: i64) -> None:
        """End a halt: parse on, and have the shell look whether it reads the socket."""
        self.halted &= ~halt
        self.wake()
        self.run()

    def write_apart(self, body: bytes, start: i64, end: i64) -> None:
        """Put `body[start:end]` into the output by itself, uncopied."""
        before = self.out.getvalue()
        self.out.truncate(0)
        self.parts.append(before)
        whole = start == 0 and end == len(body)
        self.parts.append(body if whole else memoryview(body)[start:end])
        self.parts_bytes += len(before) + end - start

    def delivered_out(self) -> None:
        """After each delivery: have it flushed, and stop the consumers when enough is waiting."""
        if not self.woken:
            self.wake()
        if len(self.out) + self.parts_bytes > OUTPUT_BYTES_HIGH:
            self.writable = False

    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order; there may be none."""
        parts = self.parts
        if len(self.out) > 0:
            parts.append(self.out.getvalue())
            self.out.truncate(0)
        if parts:
            self.parts = []
            self.parts_bytes = 0
            self.output_ms = self.now_ms
            for part in parts:
                self.sent_bytes += len(part)
        return parts

    def flushed(self, transport_full: bool) -> None:
        """Hear that the output went to the transport, and whether that holds too much now."""
        self.transport_full = transport_full
        if transport_full:
            self.writable = False
            return
        if not self.writable:
            self.writable = True
            for channel in self.channels.values():
                for consumer in channel.consumers.values():
                    consumer.queue.mark()
        if self.halted & HALT_OUTPUT:
            self.halted &= ~HALT_OUTPUT
            self.run()

    def access_changed(self) -> None:
        """Ask anew what the user may do, and end consumers of what he may not read any more."""
        rights.changed(self)

    def channel_count(self) -> i64:
        """Return how many channels are open."""
        return len(self.channels)

    # -- publishers -------------------------------------------------------------------------------

    def check_publisher(self, recorded: bool) -> None:
        """After each publish, `recorded` or not: halt while an alarm is on or too much waits."""
        if recorded and self.turn.journal.unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.halted |= HALT_SYNC
            self.turn.wait(self, self.turn.journal.durable_group + 1)
        if self.turn.spill.unwritten_bytes > SPILL_BYTES_MAX:
            self.halted |= HALT_SPILL
            self.turn.wait_spilled(self)
        if self.broker.blocked:
            alarm.stand_still(self)

    def spilled(self) -> None:
        """Parse on: what queues had no memory for is written."""
        if self.halted & HALT_SPILL:
            self.resume(HALT_SPILL)

    def alarm(self, blocked: bool, reason: str) -> None:
        """Go on when the alarm is over (behaviour 16)."""
        if not blocked:
            alarm.over(self)

    def tick(self, now_ms: i64) -> None:
        """Look at the clock (monotonic ms), about once a second."""
        heartbeat.tick(self, now_ms)

    def woke(self) -> None:
        """Hear that the process stood still for a while."""
        heartbeat.woke(self)

    # -- the end ----------------------------------------------------------------------------------

    def fail_channel(self, channel: Channel, error: AmqpError) -> None:
        """Close a channel with an error that no method of the client caused."""
        self.at_fault(channel, 0, 0)
        self._fail(error)

    def _fail(self, error: AmqpError) -> None:
        """Close the channel or the connection that an error belongs to."""
        if not self.settings.compatible:
            error.text = in_plain_words(error.text)
        if error.class_id == 0:
            error.class_id = int(self.fault_class)
            error.method_id = int(self.fault_method)
        channel = self.fault_channel
        if isinstance(error, SoftError) and channel is not None and not channel.closing:
            self.log.append(("error", f"channel {channel.number}: {error}"))
            channel.write_confirms()
            channel.closing = True
            channel.release()
            self.send(
                channel.number,
                ChannelClose(error.code, error.short_text, error.class_id, error.method_id),
            )
            return
        self.close(error)

    def close(self, error: AmqpError) -> None:
        """Close the connection with the code of `error`; what it held is released at once."""
        if self.state >= CLOSING:
            # What cannot be read stays where it is: parsing on would meet it again and again.
            self._go_deaf()
            return
        level = "info" if isinstance(error, ConnectionForced) else "error"
        self.log.append((level, str(error)))
        self._write_confirms()
        self.release()
        self.halted &= ~(HALT_SYNC | HALT_ALARM | HALT_LOGIN | HALT_SPILL | HALT_COMMIT)
        self.held = b""
        self.fault = None
        self.send(
            0,
            ConnectionClose(error.code, error.short_text, error.class_id, error.method_id),
        )
        self.state = CLOSING
        self.closing_ms = self.now_ms
        if isinstance(error, FrameError):
            self._go_deaf()

    def _go_deaf(self) -> None:
        """Parse nothing more; only look for the end of the closing handshake."""
        self.deaf = True
        self._listen(self.reader.data[self.reader.position :])

    def force(self, text: str) -> None:
        """Close the connection because the operator or a shutdown wants it (320)."""
        if self.state < OPEN:
            self.finish()
        elif self.state != CLOSED:
            self.close(ConnectionForced(text))

    def refuse_login(self, text: str, tell: bool, backoff: int = 1) -> None:
        """End a login that failed: with a close where the client can take it, else in silence.

        With a `backoff` of more than 1 either comes later, by so many times the usual delay.
        """
        self.log.append(("error", text))
        close: ConnectionClose | None = None
        times: i64 = backoff
        if tell:
            close = ConnectionClose(403, handshake.refused(self.mechanism), 0, 0)
            times -= 1
        self._refuse_after(times, close)

    def turn_away(self, text: str, error: ConnectionForced, tell: bool) -> None:
        """End a login that nobody looked at, as late as one that failed."""
        self.log.append(("warning", text))
        close: ConnectionClose | None = None
        if tell:
            close = ConnectionClose(error.code, error.short_text, 0, 0)
        self._refuse_after(1, close)

    def _refuse_after(self, times: i64, close: ConnectionClose | None) -> None:
        """Send a close, or end in silence, after so many times the delay of a refused login."""
        self.closing_ms = self.now_ms
        self.refusal = close
        self.refusal_ms = times * self.settings.login_failure_delay_ms
        if close is not None and self.refusal_ms == 0:
            self.tell_refusal()
        else:
            self.halted |= HALT_REFUSED

    def tell_refusal(self) -> None:
        """Hear that the delay of a refused login is over: send its close, or end in silence."""
        self.halted &= ~HALT_REFUSED
        if self.refusal is None:
            self.finish()
            return
        self.send(0, self.refusal)
        self.state = CLOSING
        self.closing_ms = self.now_ms
        self.wake()

    def finish(self) -> None:
        """Have the socket closed once the output is flushed."""
        self.release()
        self.state = CLOSED
        self.finished = True
        self.wake()

    def lost(self) -> None:
        """Hear that the socket is gone."""
        if self.state == OPEN:
            self.log.append(("warning", "client unexpectedly closed TCP connection"))
        self.release()
        self.state = CLOSED
        self.broker.links.pop(self, None)

    def release(self) -> None:
        """Requeue what is unacked, end consumers and delete exclusive queues (behaviour 13)."""
        # It counts no more among those of its vhost.
        self.vhost_name = ""
        channels = list(self.channels.values())
        self.channels.clear()
        self.recent = None
        for channel in channels:
            if not channel.closing:
                channel.closing = True
                channel.release()
        queues = self.exclusive_queues
        self.exclusive_queues = []
        vhost = self.vhost
        if vhost is not None:
            for queue in queues:
                vhost.drop_queue(queue)
        self.routes.clear()
