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
from leveret.large_dict import LargeDict
from leveret.limits import HAREMQ_REFUSALS_LOGGED_MAX
from leveret.session.client_session import ClientSession
from leveret.session.haremq.answers import Answers
from leveret.session.haremq.channel import (
    WRITTEN_MS,
    HareChannel,
    HareConsumer,
    HareDelivery,
    Hold,
    Pushes,
)
from leveret.session.haremq.commands import Commands
from leveret.session.haremq.frame_input import HareInput
from leveret.session.haremq.publisher import HarePublisher
from leveret.session.states import HALT_SYNC
from leveret.wire.content.output import FrameOutput
from leveret.wire.haremq.frames import Package

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.session.settings import Peer, SessionSettings
    from leveret.wire.haremq.requests import HareCodec


@final
class HareShared:
    """What all connections that a listener accepts share."""

    def __init__(self, codec: HareCodec, user: str, vhost: str) -> None:
        self.codec = codec
        #: The deliveries that wait for their ack, by key.
        self.deliveries: LargeDict[bytes, HareDelivery] = LargeDict()
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
        # No part of it is a frame of AMQP.
        self.output = FrameOutput(0)
        self.pushes = Pushes()
        self.answers = Answers(self, self.output)
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
        broker.links[self] = None
        self.user = shared.user
        try:
            if self.user in settings.loopback_users and not peer.loopback:
                raise NotAllowed(f"user '{self.user}' can only connect via localhost")
            self.enter_vhost(shared.vhost)
        except AmqpError as error:
            # A connection that may not enter the vhost ends at once.
            self.operation_failed(error)

    # -- what its parts ask of it ------------------------------------------------------------------

    def take_package(self, package: Package) -> None:
        """Answer with messages of the package that the client's first frame named."""
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
        """Forget a channel, which ends."""
        del self.channels[channel.cid]
        self.account.book(-channel.memory())
        self.core.counts.channels_closed += 1

    def refuse(self, identity: bytes, name: str, text: str) -> None:
        """Answer that a request of that name was not done, and say why in the log."""
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
            # Not `error` again: to mypyc a name has one type in a function.
            if not self.survives(bug):
                raise
            self.finish()
        if self.finished:
            # It may be 64 MB, and is booked no more; and whatever knows of the connection may
            # keep it.
            self.reader.forget()
        self._book_memory()

    def operation_failed(self, error: AmqpError) -> None:
        """Close the connection without a word to its client, because of what it did."""
        self.log.append(("warning", str(error)))
        self.finish()

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
        self.pushes.ack()
        self.count_output(parts)
        if self.starting:
            self._start_consumers()
        return parts

    def _start_consumers(self) -> None:
        """Have those consumers begin soon whose answer is in the output that is taken."""
        core = self.core
        starting = self.starting
        started: i64 = 0
        while started < len(starting) and starting[started][0] <= self.answers.written:
            core.timers.set(Hold(starting[started][1]), core.now_ms + WRITTEN_MS)
            started += 1
        del starting[:started]

    def resume_deliveries(self) -> None:
        """Mark the queues of all consumers as having something to deliver."""
        self.core.scheduler.spent += len(self.channels) // VISITED_PER_COST
        for channel in self.channels.values():
            if channel.consumer is not None:
                channel.consumer.queue.schedule()

    def synced(self, group: i64) -> None:
        """Parse on."""
        if not self.finished:
            self.resume(HALT_SYNC)

    # -- calls of the broker and the shell ---------------------------------------------------------

    def input_bytes_held(self) -> int:
        """Return how many bytes of input wait to be parsed."""
        return self.reader.held()

    def is_authenticated(self) -> bool:
        """Return whether it has asked for anything: there is no login."""
        return self._input.asked

    def channel_count(self) -> i64:
        """Return how many channels are open."""
        return len(self.channels)

    def check_consumers(self) -> Iterator[int]:
        """End the consumers of queues that the user may no longer read (behaviour 74)."""
        for channel in list(self.channels.values()):
            consumer = channel.consumer
            if consumer is not None and not self.access.allows(READ, consumer.queue.name):
                channel.cancel()
            yield 1

    def tick(self, now_ms: i64) -> None:
        """Look at the clock (monotonic ms): nothing of a connection takes too long."""
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
        """Close the connection because the operator or a shutdown wants it."""
        if not self.finished:
            self.log.append(("info", text))
            self.finish()

    def lost(self) -> None:
        """End the connection, because its socket is gone."""
        self.release(False)
        self.finished = True
        self.reader.forget()
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

    def end_channels(self) -> list[Iterator[int]]:
        """Forget the channels and all that waits; return what ends the channels, newest first."""
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
