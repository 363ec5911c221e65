"""A HareMQ client's connection as a state machine: bytes in; bytes and effects out.

The protocol has no handshake, no login, no heartbeat and no close.  So a connection has the user
and the vhost of its listener from the start, and ends without a word: when a frame cannot be read,
when the broker wants it, or when its socket is gone.  What cannot be done is answered `ok=false`
and ends nothing.

Invariants: every request is answered once, with its own ids; after `finished` nothing is parsed or
written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.core.accounts import CONSUMER_BYTES, HARE_PACKAGE_BYTES
from leveret.broker.scheduler.costs import VISITED_PER_COST
from leveret.broker.values.permission import READ
from leveret.errors import AmqpError, NotAllowed
from leveret.escaping import unquoted
from leveret.limits import HAREMQ_REFUSALS_LOGGED_MAX
from leveret.session.client_session import ClientSession
from leveret.session.haremq.answers import Answers
from leveret.session.haremq.channel import HareChannel, HareConsumer, HareDeliveries, HareOutput
from leveret.session.haremq.commands import Commands
from leveret.session.haremq.frame_input import HareInput
from leveret.session.haremq.publisher import HarePublisher
from leveret.session.states import HALT_ALARM, HALT_OUTPUT, HALT_SYNC
from leveret.wire.haremq.frames import REQUESTS, Package

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.session.settings import Peer, SessionSettings
    from leveret.wire.haremq.requests import HareCodec


@final
class HareShared:
    """What all connections that a listener accepts share."""

    def __init__(self, codec: HareCodec, user: str, vhost: str) -> None:
        self.codec = codec
        self.deliveries = HareDeliveries()
        self.user = user
        self.vhost = vhost


@final
class HareConnection(ClientSession):
    """One client's connection."""

    def __init__(
        self,
        broker: Broker,
        settings: SessionSettings,
        shared: HareShared,
        peer: Peer,
        now_ms: i64,
    ) -> None:
        super().__init__(broker, settings, peer, now_ms)
        self.shared = shared
        self.output = HareOutput()
        self.answers = Answers(self, self.output.writer)
        self.channels: dict[bytes, HareChannel] = {}
        #: Consumers whose answer is not written yet, with its number among the answers.
        self.starting: list[tuple[i64, HareConsumer]] = []
        self._refusals: i64 = 0
        self.publisher = HarePublisher(self)
        self.commands = Commands(self)
        self._input = HareInput(self, self.publisher, self.commands)
        self.reader = self._input.reader
        #: What deliveries took that wait for their ack, when it was counted last.
        self._unacked_bytes: i64 = 0
        #: True once what it held is being released.
        self._released = False
        broker.links[self] = None
        self._enter(shared.user, shared.vhost)

    def _enter(self, user: str, vhost: str) -> None:
        """Enter the vhost; a connection that may not ends at once."""
        self.user = user
        try:
            if user in self.settings.loopback_users and not self.peer.loopback:
                raise NotAllowed(f"user '{user}' can only connect via localhost")
            self.enter_vhost(vhost)
        except AmqpError as error:
            self._drop(str(error))

    # -- what its parts ask of it ------------------------------------------------------------------

    def take_package(self, package: Package) -> None:
        """Answer with messages of the package that the client's first frame named."""
        if package is not self.output.package:
            self.output.package = self.answers.package = package
            self.account.book(HARE_PACKAGE_BYTES)

    def add_channel(self, cid: bytes) -> None:
        """Open a channel."""
        vhost = self.vhost
        assert vhost is not None
        self.core.counts.channels_opened += 1
        channel = HareChannel(self, vhost, self.output, self.shared.deliveries, cid)
        self.channels[cid] = channel
        self.account.book(channel.memory())

    def forget_channel(self, channel: HareChannel) -> None:
        """Forget a channel, which ends."""
        del self.channels[channel.cid]
        self.account.book(-channel.memory())
        self.core.counts.channels_closed += 1

    def refuse(self, identity: bytes, kind: i64, text: str) -> None:
        """Answer that a request was not done, and say why in the log."""
        self.refuse_named(identity, REQUESTS[int(kind)], text)

    def refuse_named(self, identity: bytes, name: str, text: str) -> None:
        """Do as `refuse` does for a request of any name."""
        self._refusals += 1
        if self._refusals <= HAREMQ_REFUSALS_LOGGED_MAX:
            more = "; the next ones are not logged"
            end = more if self._refusals == HAREMQ_REFUSALS_LOGGED_MAX else ""
            self.log.append(("warning", f"{name} refused: {text}{end}"))
        self.answers.answer(identity, False, 0)

    # -- input -------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Take bytes that the peer sent; `now_ms` is monotonic."""
        self.count_input(data, now_ms)
        if self.finished:
            return
        if self.halted == 0:
            self.reader.feed(data)
            self.run()
        else:
            self.reader.hold(data)
            self._book_input()

    def run(self) -> None:
        """Parse what lies in the input until it ends or the connection is halted."""
        if self.finished:
            return
        if self.halted == 0:
            self.begin_slice()
        if self.halted == 0:
            self.reader.take_held()
        self.current.begin(self.published)
        try:
            self._input.take_frames()
            self._count_input()
        except AmqpError as error:
            self._drop(str(error))
        except Exception as bug:
            # Not `error` again: to mypyc a name has one type in a function.
            if isinstance(bug, MemoryError) or self.current.changed(self.published):
                raise
            self.log.append(("error", f"internal error: {unquoted(bug)}"))
            self.finish()
        self._forget_input()
        self._book_memory()

    def operation_failed(self, error: AmqpError) -> None:
        """End the connection, as where the operation had failed at once."""
        self._drop(str(error))

    def _forget_input(self) -> None:
        """Let go of the input where the connection has ended.

        It may be 64 MB, and is booked no more; and whatever knows of the connection may keep it.
        """
        if self.finished:
            self.reader.forget()

    def _count_input(self) -> None:
        """Count the part of a frame that has come among what takes memory.

        What waits while the connection is halted is little, because the shell then stops reading.

        Raises: ResourceFault (506) when no memory is left for what was begun.
        """
        begun: i64 = i64(self.reader.held()) if self.halted == 0 else 0
        more = begun - self.assembling_bytes
        if more > 0:
            self.assemble(more)
        elif more < 0:
            self.end_assembly(-more)

    def _book_input(self) -> None:
        """Book the memory of the input but what is counted among what is begun."""
        self.account.hold_input(self.reader.memory() - self.assembling_bytes)

    def _book_memory(self) -> None:
        """Book what grows with the requests."""
        self._book_input()
        # A consumer whose answer is not written yet may have been cancelled already.
        starting = CONSUMER_BYTES * i64(len(self.starting))
        self.account.hold_growing(self._unacked_bytes + self.answers.memory() + starting)

    # -- output ------------------------------------------------------------------------------------

    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order; there may be none."""
        parts = self.output.take()
        if not parts:
            return parts
        self.output.ack_pushed()
        self.count_output(parts)
        if self.starting:
            self._start_consumers()
        return parts

    def _start_consumers(self) -> None:
        """Have those consumers begin soon whose answer is in the output that is taken."""
        written = self.answers.written
        waiting: list[tuple[i64, HareConsumer]] = []
        for number, consumer in self.starting:
            if number > written:
                waiting.append((number, consumer))
            else:
                consumer.hold.start()
        self.starting = waiting

    def flushed(self, transport_full: bool) -> None:
        """Note that the transport took the output, and whether it holds too much now."""
        if transport_full:
            self.stop_deliveries()
            return
        if not self.writable and not self._released and self.output.preparing == 0:
            self.writable = True
            self._resume_deliveries()
        if self.halted & HALT_OUTPUT:
            self.end_halt(HALT_OUTPUT)
            if self.halted == 0:
                self.run()

    def _resume_deliveries(self) -> None:
        """Mark the queues of all consumers as having something to deliver."""
        self.core.scheduler.spent += len(self.channels) // VISITED_PER_COST
        for channel in self.channels.values():
            if channel.consumer is not None:
                channel.consumer.queue.schedule()

    def synced(self, group: i64) -> None:
        """Parse on."""
        if not self.finished:
            self.resume(HALT_SYNC)

    def resume(self, reason: i64) -> None:
        """End a halt: parse on, and have the shell check whether to read the socket."""
        self.halted &= ~reason
        self.wake()
        if self.halted == 0:
            self.run()

    # -- calls of the broker and the shell ---------------------------------------------------------

    def input_bytes_held(self) -> int:
        """Return how many bytes of input wait to be parsed."""
        return self.reader.held()

    def is_authenticated(self) -> bool:
        """Return whether it has asked for anything: there is no login."""
        return self._input.asked

    def is_authenticating(self) -> bool:
        """Return False: there is no login."""
        return False

    def awaits_reply(self) -> bool:
        """Return whether the connection is open."""
        return not self.finished

    def channel_count(self) -> i64:
        """Return how many channels are open."""
        return len(self.channels)

    def access_changed(self) -> None:
        """Read the user's permissions again: consumers that they no longer allow end."""
        if self.vhost is not None and not self.finished:
            self.access.forget()

    def check_consumers(self) -> Iterator[int]:
        """End the consumers of queues that the user may no longer read (behaviour 74)."""
        for channel in list(self.channels.values()):
            consumer = channel.consumer
            if consumer is not None and not self.access.allows(READ, consumer.queue.name):
                channel.cancel()
            yield 1

    def publisher_blocked(self) -> None:
        """Read nothing more until the alarm is over: the client hears no other word of it."""
        self.halt(HALT_ALARM)

    def alarm(self, blocked: bool, reason: str) -> None:
        """Read on when the alarm is over (behaviour 16)."""
        if not blocked and self.halted & HALT_ALARM:
            self.resume(HALT_ALARM)

    def set_reading(self, reading: bool, now_ms: i64) -> None:
        """Note nothing: no client is timed out."""

    def tick(self, now_ms: i64) -> None:
        """Look at the clock (monotonic ms): nothing of a connection takes too long."""
        self.now_ms = now_ms
        if self.settle_unacked():
            self._resume_deliveries()
        if self.output.trim():
            self.answers.write_to(self.output.writer)
        self.reader.trim()
        self.publisher.cache.forget_stale()
        channels = self.channels
        self.core.scheduler.spent += len(channels) // VISITED_PER_COST
        self._unacked_bytes = 0
        for channel in channels.values():
            self._unacked_bytes += channel.unacked_bytes()
        self._book_memory()

    def resumed(self) -> None:
        """Do nothing after the process was suspended: no client counts heartbeats."""

    # -- the end -----------------------------------------------------------------------------------

    def force(self, text: str) -> None:
        """Close the connection because the operator or a shutdown wants it."""
        if not self.finished:
            self.log.append(("info", text))
            self.finish()

    def _drop(self, text: str) -> None:
        """Close the connection without a word to its client, because of what it did."""
        self.log.append(("warning", text))
        self.finish()

    def finish(self) -> None:
        """End the connection: the shell closes the socket once the output is flushed."""
        self._release()
        self.finished = True
        self.wake()

    def lost(self) -> None:
        """End the connection, because its socket is gone."""
        self._release()
        self.reader.forget()
        self.finished = True
        self.forget_link()
        self.account.end()
        self.unacked.end()
        self.output.take()
        self.has_no_socket()

    def untie(self) -> None:
        """Replace the parts by those of the ended connection that the broker keeps."""
        self.vhost = None
        ended = self.broker.ended_links.setdefault("haremq", self)
        assert isinstance(ended, HareConnection)
        self.answers = ended.answers
        self.publisher = ended.publisher
        self.commands = ended.commands
        self._input = ended._input  # noqa: SLF001 (of the same class)
        self.reader = ended.reader

    def _release(self) -> None:
        """Requeue what is unacked, end consumers and delete exclusive queues (behaviour 13)."""
        if self._released:
            return
        self._released = True
        self.broker.leave(self)
        self.stop_deliveries()
        channels = list(self.channels.values())
        for channel in channels:
            self.forget_channel(channel)
        self.starting = []
        self.output.ack_pushed()
        self.core.scheduler.start(self._release_all(channels))
        self.answers.end()
        self.publisher.cache.forget()
        if self.assembling_bytes > 0:
            self.end_assembly(self.assembling_bytes)

    def _release_all(self, channels: list[HareChannel]) -> Iterator[int]:
        """End the channels, the newest first, and then delete the exclusive queues."""
        while channels:
            yield from channels.pop().end(True)
            yield 1
        yield from self.drop_exclusive()
        self.holds_nothing()
