"""Snapshots of connections, channels and consumers for the management API.

See `leveret.broker.admin.stats`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.node.broker import Broker
from leveret.broker.queue.consumer import Consumer, DeliveryChannel
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.link import Link
from leveret.limits import HAREMQ_FRAME_BYTES_MAX
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import Connection
from leveret.session.haremq.channel import HareChannel
from leveret.session.haremq.connection import HareConnection
from leveret.session.states import CLOSING, HALT_ALARM, HALT_OUTPUT, HALT_SPILL, HALT_SYNC, OPEN


@final
class ConnectionStats:
    """One client connection; times are wall time in ms."""

    def __init__(self, connection: ClientSession) -> None:
        peer = connection.peer
        vhost = connection.vhost
        self.name: Final = connection.name
        self.user: Final = connection.user
        self.vhost: Final = "" if vhost is None else vhost.name
        self.state: Final = _state(connection)
        self.peer_host: Final = peer.host
        self.peer_port: Final = peer.port
        self.host: Final = peer.local_host
        self.port: Final = peer.local_port
        #: What protects it; all texts are empty without TLS.
        self.tls_version: Final = peer.security.version
        self.tls_cipher: Final = peer.security.cipher
        self.certificate_name: Final = peer.security.certificate_name
        self.channel_count: Final = int(connection.channel_count())
        self.connected_at_ms: Final = int(connection.connected_at_ms)
        #: The memory that it holds beside messages.
        self.memory_bytes: Final = int(connection.account.bytes)
        self.received_bytes: Final = int(connection.received_bytes)
        self.sent_bytes: Final = int(connection.sent_bytes)
        # Reads and writes of the socket; RabbitMQ counts its packets here.
        self.received_count: Final = int(connection.received_packets)
        self.sent_count: Final = int(connection.sent_packets)
        self.unsent_bytes: Final = int(connection.account.output_bytes)
        if isinstance(connection, Connection):
            self.protocol = "AMQP 0-9-1"
            self.mechanism = connection.handshake.mechanism
            self.channels_max = int(connection.channels_max)
            self.frame_bytes_max = int(connection.frame_bytes_max)
            self.heartbeat_seconds = int(connection.heartbeat.interval_ms) // 1000
            self.client_properties = connection.handshake.client_properties
        else:
            # HareMQ's protocol negotiates nothing.
            self.protocol = "HareMQ"
            self.mechanism = ""
            self.channels_max = int(connection.settings.channels_max)
            self.frame_bytes_max = HAREMQ_FRAME_BYTES_MAX
            self.heartbeat_seconds = 0
            self.client_properties = {}


def _state(connection: ClientSession) -> str:
    """Return a connection's state in RabbitMQ's words."""
    if isinstance(connection, Connection):
        if connection.state < OPEN:
            return "starting"
        if connection.state >= CLOSING:
            return "closing"
    elif connection.finished:
        return "closing"
    if connection.halted & HALT_ALARM:
        return "blocked"
    return "flow" if connection.halted & (HALT_SYNC | HALT_OUTPUT | HALT_SPILL) else "running"


@final
class ConnectionListing:
    """The connections that are there, or those of a user, some at a time."""

    def __init__(self, broker: Broker, user: str | None = None, vhost: str | None = None) -> None:
        self._left: Final[list[Link]] = [
            link
            for link in broker.links
            if isinstance(link, ClientSession)
            and (user is None or link.user == user)
            and (vhost is None or link.vhost_name == vhost)
        ]
        self._links: Final = broker.links
        self._next: i64 = 0

    def take(self, count: i64) -> list[ConnectionStats]:
        """Return the snapshots of the next `count` connections at most; none at the end."""
        taken: list[ConnectionStats] = []
        while len(taken) < count and self._next < len(self._left):
            link = self._left[self._next]
            self._next += 1
            if link in self._links and isinstance(link, ClientSession):
                taken.append(ConnectionStats(link))
        return taken


def connection_stats(broker: Broker, name: str, user: str | None = None) -> ConnectionStats | None:
    """Return the snapshot of the connection of that name, or None; see `find_connection`."""
    link = find_connection(broker, name, user)
    return None if link is None else ConnectionStats(link)


def find_connection(broker: Broker, name: str, user: str | None = None) -> ClientSession | None:
    """Return the connection of that name, which is one of `user` if that is given, or None."""
    for link in broker.links:
        if link.name == name and isinstance(link, ClientSession) and user in (None, link.user):
            return link
    return None


@final
class Ends:
    """The connection that a channel or a consumer is of, as it is shown with them."""

    def __init__(self, link: Link) -> None:
        self.connection: Final = link.name
        self.vhost: Final = link.vhost_name
        host = ""
        port = 0
        user = ""
        if isinstance(link, ClientSession):
            host = link.peer.host
            port = link.peer.port
            user = link.user
        self.peer_host: Final = host
        self.peer_port: Final = port
        self.user: Final = user


@final
class ChannelStats:
    """One channel; `number` is its place where the protocol has no numbers."""

    def __init__(self, ends: Ends, number: i64, state: str, channel: DeliveryChannel) -> None:
        self.ends: Final = ends
        self.number: Final = int(number)
        self.state: Final = state
        self.global_prefetch_count: Final = int(channel.prefetch_count)
        self.consumer_count = 0
        self.prefetch_count = 0
        self.unacked = int(channel.unacked_count)
        self.unconfirmed = 0
        self.confirm = False
        self.transactional = False
        self.uncommitted = 0
        self.acks_uncommitted = 0
        if isinstance(channel, Channel):
            self.consumer_count = len(channel.consumers)
            self.prefetch_count = int(channel.prefetch_next)
            self.unacked = int(channel.unacked.count)
            self.unconfirmed = int(channel.confirms.unconfirmed())
            self.confirm = channel.mode == CONFIRM
            self.transactional = channel.mode == TX
            transaction = channel.transaction
            self.uncommitted = len(transaction.publishes)
            self.acks_uncommitted = sum([len(one.unacked) for one in transaction.settles])
        elif isinstance(channel, HareChannel) and channel.consumer is not None:
            self.consumer_count = 1

    @property
    def name(self) -> str:
        """The channel's name as RabbitMQ writes it."""
        return f"{self.ends.connection} ({self.number})"


@final
class ConsumerStats:
    """One consumer; `number` is its channel's."""

    def __init__(self, ends: Ends, number: i64, consumer: Consumer) -> None:
        self.ends: Final = ends
        self.number: Final = int(number)
        source = consumer.queue
        self.queue: Final = source.name
        self.tag: Final = consumer.tag
        self.exclusive: Final = consumer.exclusive
        self.ack_required: Final = not consumer.no_ack
        self.prefetch_count: Final = int(consumer.prefetch_count)
        self.arguments: Final = consumer.arguments
        own = consumer.ack_limit_ms
        limit = source.settings.consumer_timeout_ms if own < 0 else own
        self.consumer_timeout_ms: Final = int(limit)
        active = True
        #: False where one consumer of the queue gets everything.
        self.shared = True
        if isinstance(source, Queue):
            self.shared = not source.single_active
            active = source.consumer_order.is_active(consumer)
        self.active: Final = active


def _channels(session: ClientSession) -> list[DeliveryChannel]:
    """Return the channels of a connection."""
    found: list[DeliveryChannel] = []
    if isinstance(session, Connection):
        found.extend(session.channels.by_number.values())
    elif isinstance(session, HareConnection):
        found.extend(session.channels.values())
    return found


def _number(channel: DeliveryChannel, place: i64) -> i64:
    """Return a channel's number; its place among the others where it has none."""
    return channel.number if isinstance(channel, Channel) else place


def _consumers(channel: DeliveryChannel) -> list[Consumer]:
    """Return the consumers of a channel."""
    if isinstance(channel, Channel):
        return list(channel.consumers.values())
    if isinstance(channel, HareChannel) and channel.consumer is not None:
        return [channel.consumer]
    return []


def _is_there(consumer: Consumer) -> bool:
    """Tell whether a consumer has not ended."""
    channel = consumer.channel
    if isinstance(channel, Channel):
        return channel.consumers.get(consumer.tag) is consumer
    return isinstance(channel, HareChannel) and channel.consumer is consumer


@final
class _ChannelWalk:
    """The channels of all connections, or of those in a vhost, of a name or of a user, in turn."""

    def __init__(
        self, broker: Broker, vhost: str | None, connection: str | None, user: str | None
    ) -> None:
        self._links: Final = broker.links
        self._left: Final[list[Link]] = [
            link
            for link in broker.links
            if link.vhost_name
            and (vhost is None or link.vhost_name == vhost)
            and (connection is None or link.name == connection)
            and (user is None or (isinstance(link, ClientSession) and link.user == user))
        ]
        self._left.reverse()
        self._session: ClientSession | None = None
        self._channels: list[DeliveryChannel] = []
        self._next: i64 = 0
        self.ends: Ends | None = None
        self.state = ""

    def next(self) -> DeliveryChannel | None:
        """Return the next channel, whose connection is in `ends`; None after the last."""
        while self._next >= len(self._channels):
            if not self._left:
                return None
            link = self._left.pop()
            if link not in self._links or not isinstance(link, ClientSession):
                continue
            self._channels = _channels(link)
            self._next = 0
            self.ends = Ends(link)
            self.state = _state(link)
        self._next += 1
        return self._channels[self._next - 1]

    def number(self, channel: DeliveryChannel) -> i64:
        """Return the number of the channel that `next` returned last."""
        return _number(channel, self._next)


@final
class ChannelListing:
    """The channels of a vhost, of a connection, of a user or of all, some at a time."""

    def __init__(
        self,
        broker: Broker,
        vhost: str | None = None,
        connection: str | None = None,
        user: str | None = None,
    ) -> None:
        self._walk: Final = _ChannelWalk(broker, vhost, connection, user)

    def take(self, count: i64) -> list[ChannelStats]:
        """Return the snapshots of the next `count` channels at most; none at the end."""
        taken: list[ChannelStats] = []
        walk = self._walk
        while len(taken) < count:
            channel = walk.next()
            ends = walk.ends
            if channel is None or ends is None:
                break
            taken.append(ChannelStats(ends, walk.number(channel), walk.state, channel))
        return taken


@final
class ConsumerListing:
    """The consumers of a vhost, of a connection, of a user or of all, some at a time."""

    def __init__(
        self,
        broker: Broker,
        vhost: str | None = None,
        connection: str | None = None,
        user: str | None = None,
    ) -> None:
        self._walk: Final = _ChannelWalk(broker, vhost, connection, user)
        #: The consumers of the channel that the walk is at, and its number.
        self._consumers: list[Consumer] = []
        self._next: i64 = 0
        self._number: i64 = 0

    def take(self, count: i64) -> list[ConsumerStats]:
        """Return the snapshots of the next `count` consumers at most; none at the end."""
        taken: list[ConsumerStats] = []
        walk = self._walk
        looked: i64 = 0
        while len(taken) < count and (looked < count or not taken):
            looked += 1
            if self._next < len(self._consumers):
                consumer = self._consumers[self._next]
                self._next += 1
                ends = walk.ends
                if ends is not None and _is_there(consumer):
                    taken.append(ConsumerStats(ends, self._number, consumer))
                continue
            channel = walk.next()
            if channel is None:
                break
            self._consumers = _consumers(channel)
            self._next = 0
            self._number = walk.number(channel)
        return taken


def queue_consumers(broker: Broker, vhost: str, name: str, count: i64) -> list[ConsumerStats]:
    """Return the first `count` consumers of a queue; none where there is no such queue."""
    found = broker.vhosts.get(vhost)
    queue = None if found is None else found.queues.by_name.get(name)
    if queue is None:
        return []
    return [
        ConsumerStats(Ends(one.channel.link), _number(one.channel, 1), one)
        for one in queue.consumers[:count]
    ]


def channel_consumers(broker: Broker, stats: ChannelStats, count: i64) -> list[ConsumerStats]:
    """Return the first `count` consumers of a channel; none where it has ended."""
    session = find_connection(broker, stats.ends.connection, stats.ends.user)
    if session is None:
        return []
    ends = Ends(session)
    for place, channel in enumerate(_channels(session), 1):
        if _number(channel, place) == stats.number:
            return [ConsumerStats(ends, stats.number, one) for one in _consumers(channel)[:count]]
    return []
