"""The totals of all connections and channels, for metrics; see `broker.stats.metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.broker import Broker
from leveret.broker.counters import LinkCounts
from leveret.session.channel.channel import ServerChannel
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import AmqpConnection
from leveret.session.stats import sessions

#: The number of channels that costs a walk as much as one connection.
_CHANNELS_LIKE_CONNECTION: Final = 2


@final
class ChannelLevels:
    """The current totals of some channels: consumers, unacked messages and so on."""

    def __init__(self) -> None:
        self.connections: i64 = 0
        self.channels: i64 = 0
        #: Channels on which at least one message was published.
        self.publishers: i64 = 0
        self.consumers: i64 = 0
        self.unacked: i64 = 0
        self.unconfirmed: i64 = 0
        #: Publishes and acks that wait for a tx.commit.
        self.uncommitted: i64 = 0
        self.acks_uncommitted: i64 = 0
        #: The prefetch counts of the channels, and those set for their next consumers.
        self.prefetch: i64 = 0
        self.consumer_prefetch: i64 = 0

    def add(self, channel: ServerChannel) -> None:
        """Add one channel."""
        self.channels += 1
        self.publishers += 1 if channel.publishes else 0
        self.consumers += len(channel.consumers)
        self.unacked += channel.unacked.count
        self.unconfirmed += channel.confirms.unconfirmed()
        self.uncommitted += len(channel.transaction.publishes)
        self.acks_uncommitted += len(channel.transaction.settles)
        self.prefetch += channel.prefetch_count
        self.consumer_prefetch += channel.prefetch_next


@final
class LinkWalk:
    """A walk over all connections; `number` was returned by `Counts.begin_walk`."""

    def __init__(self, broker: Broker, number: i64) -> None:
        self._broker: Final = broker
        self._number: Final[i64] = number
        self.levels: Final = ChannelLevels()
        self._seen: Final = LinkCounts()

    def see_all(self) -> Iterator[int]:
        """Count all connections, yielding the cost of each."""
        for link in sessions(self._broker):
            self._see(link)
            yield 1 + int(link.channel_count()) // _CHANNELS_LIKE_CONNECTION

    def _see(self, link: ClientSession) -> None:
        """Count a connection."""
        link.walk = self._number
        link.add_counts(self._seen)
        levels = self.levels
        if link.vhost_name:
            levels.connections += 1
        if isinstance(link, AmqpConnection):
            for channel in link.channels.by_number.values():
                levels.add(channel)
        else:
            levels.channels += link.channel_count()
            levels.publishers += 1 if link.published > 0 else 0

    def finish(self) -> LinkCounts:
        """Return the totals of all connections since the start, including closed ones."""
        total = LinkCounts()
        total.add(self._seen)
        counts = self._broker.core.counts
        total.add(counts.gone_links)
        total.add(counts.seen_links, -1)
        return total


@final
class ConnectionRow:
    """One connection with its counters."""

    def __init__(self, link: ClientSession) -> None:
        self.name: Final = link.name
        self.counts: Final = LinkCounts()
        self.channel_count: Final = int(link.channel_count())
        link.add_counts(self.counts)


@final
class ChannelRow:
    """One channel with its levels."""

    def __init__(self, connection: str, channel: ServerChannel) -> None:
        self.name: Final = f"{connection} ({channel.number})"
        self.levels: Final = ChannelLevels()
        self.levels.add(channel)


@final
class LinkRows:
    """All connections with their channels, up to `limit` of each.

    The rest is only counted, in `omitted` and `channels_omitted`.
    """

    def __init__(self, broker: Broker, limit: int) -> None:
        self.rows: Final[list[ConnectionRow]] = []
        self.channels: Final[list[ChannelRow]] = []
        self.omitted = 0
        self.channels_omitted = 0
        self._limit: Final = limit
        self._broker: Final = broker

    def take_all(self) -> Iterator[int]:
        """Collect the rows, yielding the cost of each connection."""
        for link in sessions(self._broker):
            taken = 1
            if len(self.rows) < self._limit:
                self.rows.append(ConnectionRow(link))
            else:
                self.omitted += 1
            if isinstance(link, AmqpConnection):
                taken += len(link.channels.by_number) // _CHANNELS_LIKE_CONNECTION
                self._take_channels(link)
            yield taken

    def _take_channels(self, connection: AmqpConnection) -> None:
        for channel in connection.channels.by_number.values():
            if len(self.channels) < self._limit:
                self.channels.append(ChannelRow(connection.name, channel))
            else:
                self.channels_omitted += 1
