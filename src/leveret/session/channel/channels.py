"""The channels of one connection: opening, forgetting, and operations on all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.scheduler.accounts import CHANNEL_BYTES
from leveret.broker.users.permissions import READ
from leveret.broker.vhost.replies import is_reply_name
from leveret.errors import NotAllowed
from leveret.session.channel.channel import ServerChannel
from leveret.session.channel.confirms import Confirms
from leveret.session.channel.consumer_timeout import AckClock
from leveret.session.connection_base import ConnectionBase

if TYPE_CHECKING:
    from leveret.broker.consumers.consumer import QueueConsumer


@final
class Channels:
    """The channels of one connection that are open, or whose close the client has yet to answer."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: The confirms to write at the end of the batch.
        self._confirms: list[Confirms] = []
        self.by_number: dict[i64, ServerChannel] = {}
        #: Enforces the time limits for acks.
        self.acks = AckClock(connection, self.by_number)
        #: `_resumes` is True while `_resume` runs, `_resumes_again` if it must run once more.
        self._resumes = False
        self._resumes_again = False
        #: The channel of the last publish, while it exists.
        self.recent: ServerChannel | None = None

    def open(self, number: i64) -> ServerChannel:
        """Open and return a channel; its number is free.

        Raises: NotAllowed (530) if the connection has reached its negotiated channel_max
        (behaviour 12: open channels are counted), or the user their channel limit.
        """
        connection = self._connection
        if len(self.by_number) >= connection.channels_max:
            raise NotAllowed(
                f"number of channels opened ({len(self.by_number)}) has reached the negotiated "
                f"channel_max ({connection.channels_max})"
            )
        connection.broker.check_channel(connection)
        vhost = connection.vhost
        assert vhost is not None
        channel = self.by_number[number] = ServerChannel(connection, number, vhost, self._confirms)
        connection.account.book(CHANNEL_BYTES)
        connection.core.counts.channels_opened += 1
        return channel

    def forget(self, channel: ServerChannel) -> None:
        """Free the number of a channel, because the client knows that the channel is closed."""
        if channel.confirms.progress is not None:
            channel.confirms.progress.close()
        del self.by_number[channel.number]
        self._connection.account.book(-CHANNEL_BYTES)
        self._connection.core.counts.channels_closed += 1
        if self.recent is channel:
            self.recent = None

    def end(self) -> list[ServerChannel]:
        """Forget all channels, because the connection ends; return those to release.

        Nothing more is written for any of them.
        """
        channels = [channel for channel in self.by_number.values() if not channel.closing]
        self.acks.end()
        self._connection.account.book(-CHANNEL_BYTES * len(self.by_number))
        self._connection.core.counts.channels_closed += len(self.by_number)
        self.by_number.clear()
        self.recent = None
        for channel in channels:
            channel.closing = True
            channel.confirms.end()
        return channels

    # -- confirms ----------------------------------------------------------------------------------

    def write_confirms(self) -> None:
        """Write the confirms of all publishes settled in this batch."""
        if self._confirms:
            for confirms in self._confirms:
                confirms.write()
            self._confirms.clear()
            self._connection.wake()

    def unsynced_group(self) -> i64:
        """Return a journal group that publishes still wait for, or 0."""
        for channel in self.by_number.values():
            group = channel.confirms.waiting_group()
            if group > 0:
                return group
        return 0

    def unacked_count(self) -> i64:
        """Return the number of unacked deliveries."""
        count: i64 = 0
        for channel in self.by_number.values():
            count += channel.unacked.count
        return count

    # -- consumers ---------------------------------------------------------------------------------

    def resume_deliveries(self) -> None:
        """Schedule the queues of all consumers, because there is room for deliveries."""
        self._resumes_again = True
        if not self._resumes:
            self._resumes = True
            self._connection.scheduler.start(self._resume())

    def _resume(self) -> Iterator[int]:
        # Finish the list before starting again, so that channels at the end of a long list get
        # deliveries too.
        while self._resumes_again:
            self._resumes_again = False
            for channel in list(self.by_number.values()):
                channel.offer()
                yield 1
        self._resumes = False

    def check_consumers(self) -> Iterator[int]:
        """Cancel the consumers of queues that the user may no longer read.

        Source: behaviour 74 (consumers are checked again when permissions change).
        """
        for channel in list(self.by_number.values()):
            yield 1
            for consumer in list(channel.consumers.values()):
                yield from self._check(channel, consumer)

    def _check(self, channel: ServerChannel, consumer: QueueConsumer) -> Iterator[int]:
        """Cancel a consumer if it still exists and the user may not read all of its queues."""
        access = self._connection.access
        for name in consumer.queue.names():
            if channel.closing or channel.consumers.get(consumer.tag) is not consumer:
                return
            if not is_reply_name(name) and not access.allows(READ, name):
                channel.cancelled(consumer)
                channel.vhost.queues.unsubscribe(consumer)
            yield 1
