"""A HareMQ connection as a sans-IO state machine: bytes in, bytes and effects out.

The protocol has no handshake, no login, no heartbeat and no close.  A connection has the user and
the vhost of its listener from the start.  It ends without notice on a malformed frame, when the
broker closes it, or when its socket is lost.  A refused request is answered with `ok=false`, and
does not end the connection.

Invariants: every request is answered once, with its own ids.  After `finished` is set, nothing is
parsed or written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.consumers.consumer import DeliveryChannel
from leveret.broker.scheduler.accounts import CONSUMER_BYTES, HARE_PACKAGE_BYTES
from leveret.broker.scheduler.costs import VISITED_PER_COST
from leveret.broker.users.permissions import READ
from leveret.errors import AmqpError, NotAllowed
from leveret.haremq.answers import Answers
from leveret.haremq.channel import (
    WRITTEN_MS,
    FirstPush,
    HareChannel,
    HareConsumer,
    HareDelivery,
    Pushes,
)
from leveret.haremq.commands import HareCommands
from leveret.haremq.frame_input import HareInput
from leveret.haremq.frames import Package
from leveret.haremq.publisher import HarePublisher
from leveret.large_dict import LargeDict
from leveret.session.client_session import ClientSession
from leveret.session.states import HALT_SYNC
from leveret.wire.content.output import FrameOutput

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.haremq.requests import HareCodec
    from leveret.session.settings import Peer, SessionSettings

#: The maximum number of logged refusals of a connection, since refusals do not end it.
HAREMQ_REFUSALS_LOGGED_MAX: Final = 100


@final
class HareShared:
    """The state that all connections of a listener share."""

    def __init__(self, codec: HareCodec, user: str, vhost: str) -> None:
        self.codec = codec
        #: The unacked deliveries, by key.
        self.deliveries: LargeDict[bytes, HareDelivery] = LargeDict()
        self.user = user
        self.vhost = vhost


@final
class HareConnection(ClientSession):
    """One HareMQ connection."""

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
        # It writes no AMQP frames.
        self.output = FrameOutput(0)
        self.pushes = Pushes()
        self.answers = Answers(self, self.output)
        self.channels: dict[bytes, HareChannel] = {}
        #: The consumers that wait for the write of their answers, with the answers' numbers.
        self.starting: list[tuple[i64, HareConsumer]] = []
        self._refusals: i64 = 0
        self.publisher = HarePublisher(self)
        self.commands = HareCommands(self)
        self._input = HareInput(self, self.publisher, self.commands)
        self.reader = self._input.reader
        #: The memory of unacked deliveries at the last tick.
        self._unacked_bytes: i64 = 0
        broker.links[self] = None
        self.user = shared.user
        try:
            if self.user in settings.loopback_users and not peer.loopback:
                raise NotAllowed(f"user '{self.user}' can only connect via localhost")
            self.enter_vhost(shared.vhost)
        except AmqpError as error:
            # A connection without access to the vhost ends at once.
            self.operation_failed(error)

    # -- called by the connection's parts ----------------------------------------------------------

    def take_package(self, package: Package) -> None:
        """Set the package of the answers to that of the client's first frame."""
        if package is not self.pushes.package:
            self.pushes.package = self.answers.package = package
            self.account.book(HARE_PACKAGE_BYTES)

    def add_channel(self, cid: bytes) -> None:
        """Open a channel."""
        vhost = self.vhost
        assert vhost is not None
        self.core.counts.channels_opened += 1
        channel = HareChannel(self, vhost, self.output, self.pushes, self.shared.deliveries, cid)
        self.channels[cid] = channel
        self.account.book(channel.memory())

    def forget_channel(self, channel: HareChannel) -> None:
        """Remove a closing channel."""
        del self.channels[channel.cid]
        self.account.book(-channel.memory())
        self.core.counts.channels_closed += 1

    def refuse(self, identity: bytes, name: str, text: str) -> None:
        """Answer a refused request, and log its name and the reason."""
        self._refusals += 1
        if self._refusals <= HAREMQ_REFUSALS_LOGGED_MAX:
            more = "; the next ones are not logged"
            end = more if self._refusals == HAREMQ_REFUSALS_LOGGED_MAX else ""
            self.log.append(("warning", f"{name} refused: {text}{end}"))
        self.answers.answer(identity, False, 0)

    # -- input -------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: i64) -> None:
        """Handle bytes from the peer; `now_ms` is monotonic."""
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
        """Parse input until no complete frame is left or the connection is halted."""
        if not self.awaits_reply() or self.halted != 0:
            return
        self.begin_slice()
        if self.halted == 0:
            self.reader.take_held()
        self.current.begin(self.published)
        try:
            self._input.take_frames()
            self._count_input()
        except AmqpError as error:
            self.operation_failed(error)
        except Exception as bug:
            # Not `error` again, because in mypyc a name has one type per function.
            if not self.survives(bug):
                raise
            self.finish()
        if self.finished:
            # Free the input, which may be 64 MB long and is not counted any more; references to the
            # connection could keep it in memory.
            self.reader.forget()
        self._book_memory()

    def operation_failed(self, error: AmqpError) -> None:
        """Log the error and close the connection, without notice to the client."""
        self.log.append(("warning", str(error)))
        self.finish()

    def _count_input(self) -> None:
        """Count the memory of an incomplete frame.

        A halted connection counts 0, since it has little input: the shell stops reading.

        Raises: ResourceFault (506) as `assemble`.
        """
        begun: i64 = i64(self.reader.held()) if self.halted == 0 else 0
        more = begun - self.assembling_bytes
        if more > 0:
            self.assemble(more)
        elif more < 0:
            self.end_assembly(-more)

    def _book_input(self) -> None:
        """Book the memory of the input, except an incomplete frame, counted by `_count_input`."""
        self.account.hold_input(self.reader.memory() - self.assembling_bytes)

    def _book_memory(self) -> None:
        """Book the memory that grows with the requests."""
        self._book_input()
        # A consumer that waits for its answer may already be cancelled, and then is not booked.
        starting = CONSUMER_BYTES * i64(len(self.starting))
        self.account.hold_growing(self._unacked_bytes + self.answers.memory() + starting)

    # -- output ------------------------------------------------------------------------------------

    def take_output(self) -> list[bytes | memoryview]:
        """Return the bytes to send, in order; empty if there are none."""
        parts = self.output.take()
        if not parts:
            return parts
        self.pushes.ack()
        self.count_output(parts)
        if self.starting:
            self._start_consumers()
        return parts

    def _start_consumers(self) -> None:
        """Start the timers of the consumers whose answers the shell has just taken."""
        core = self.core
        starting = self.starting
        started: i64 = 0
        while started < len(starting) and starting[started][0] <= self.answers.written:
            core.timers.set(FirstPush(starting[started][1]), core.now_ms + WRITTEN_MS)
            started += 1
        del starting[:started]

    def resume_deliveries(self) -> None:
        """Schedule the queues of all consumers, because the output has space for deliveries."""
        self.core.scheduler.spent += len(self.channels) // VISITED_PER_COST
        for channel in self.channels.values():
            if channel.consumer is not None:
                channel.consumer.queue.schedule()

    def synced(self, group: i64) -> None:
        """Resume parsing after a sync."""
        if not self.finished:
            self.resume(HALT_SYNC)

    # -- called by the broker and the shell --------------------------------------------------------

    def input_bytes_held(self) -> int:
        """Return the number of unparsed bytes of input."""
        return self.reader.held()

    def is_authenticated(self) -> bool:
        """Return whether the client has sent a request, since the protocol has no login."""
        return self._input.asked

    def open_channels(self) -> list[DeliveryChannel]:
        """Return the open channels."""
        return list(self.channels.values())

    def channel_count(self) -> i64:
        """Return the number of open channels."""
        return len(self.channels)

    def check_consumers(self) -> Iterator[int]:
        """Cancel the consumers of queues that the user may no longer read.

        Source: behaviour 74 (consumers are checked again when permissions change).
        """
        for channel in list(self.channels.values()):
            consumer = channel.consumer
            if consumer is not None and not self.access.allows(READ, consumer.queue.name):
                channel.cancel()
            yield 1

    def tick(self, now_ms: i64) -> None:
        """Do periodic work, about once a second; `now_ms` is monotonic."""
        self.now_ms = now_ms
        self.settle_unacked()
        self.output.trim()
        self.reader.trim()
        self.publisher.cache.forget_stale()
        channels = self.channels
        self.core.scheduler.spent += len(channels) // VISITED_PER_COST
        self._unacked_bytes = 0
        for channel in channels.values():
            self._unacked_bytes += channel.unacked_bytes()
        self._book_memory()

    # -- the end -----------------------------------------------------------------------------------

    def force(self, text: str) -> None:
        """Close the connection because of an operator or a shutdown; `text` is logged."""
        if not self.finished:
            self.log.append(("info", text))
            self.finish()

    def lost(self) -> None:
        """End the connection, whose socket is lost."""
        self.release(False)
        self.finished = True
        self.reader.forget()
        self.output.take()
        self.has_no_socket()

    def untie(self) -> None:
        """Replace the connection's parts with those of an ended connection shared by all."""
        self.vhost = None
        ended = self.broker.ended_links.setdefault("haremq", self)
        assert isinstance(ended, HareConnection)
        self.answers = ended.answers
        self.publisher = ended.publisher
        self.commands = ended.commands
        self._input = ended._input  # noqa: SLF001 (of the same class)
        self.reader = ended.reader

    def end_channels(self) -> list[Iterator[int]]:
        """Remove channels and waiting answers; return the channels' `end`s, newest first."""
        channels = list(self.channels.values())
        for channel in channels:
            self.forget_channel(channel)
        self.starting = []
        self.pushes.ack()
        self.answers.end()
        self.publisher.cache.forget()
        if self.assembling_bytes > 0:
            self.end_assembly(self.assembling_bytes)
        return [channel.end(True) for channel in reversed(channels)]
