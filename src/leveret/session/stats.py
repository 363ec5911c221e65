"""Snapshots of connections, channels and consumers for the management API.

See `leveret.broker.stats.stats`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.broker import Broker
from leveret.broker.consumers.consumer import DeliveryChannel, QueueConsumer
from leveret.broker.queue.queue import Queue
from leveret.broker.stats.stats import find_queue
from leveret.limits import HAREMQ_FRAME_BYTES_MAX
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.session.client_session import ClientSession
from leveret.session.connection.connection import AmqpConnection
from leveret.session.states import CLOSING, HALT_ALARM, HALT_OUTPUT, HALT_SPILL, HALT_SYNC, OPEN


@final
class ConnectionStats:
    """One client connection; times are wall time in ms."""

    def __init__(self, connection: ClientSession) -> None:
        peer = connection.peer
        counts = connection.counts
        self.name: Final = connection.name
        self.user: Final = connection.user
        self.vhost: Final = connection.vhost_name
        self.state: Final = _state(connection)
        self.peer_host: Final = peer.host
        self.peer_port: Final = peer.port
        self.host: Final = peer.local_host
        self.port: Final = peer.local_port
        #: These three are empty without TLS.
        self.tls_version: Final = peer.security.version
        self.tls_cipher: Final = peer.security.cipher
        self.certificate_name: Final = peer.security.certificate_name
        self.channel_count: Final = int(connection.channel_count())
        self.connected_at_ms: Final = int(connection.connected_at_ms)
        #: The memory of the connection, without messages.
        self.memory_bytes: Final = int(connection.account.bytes)
        self.received_bytes: Final = int(counts.received_bytes)
        self.sent_bytes: Final = int(counts.sent_bytes)
        # Reads and writes of the socket; RabbitMQ counts its packets here.
        self.received_count: Final = int(counts.received_packets)
        self.sent_count: Final = int(counts.sent_packets)
        self.unsent_bytes: Final = int(connection.account.output_bytes)
        if isinstance(connection, AmqpConnection):
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
    if isinstance(connection, AmqpConnection):
        if connection.state < OPEN:
            return "starting"
        if connection.state >= CLOSING:
            return "closing"
    elif connection.finished:
        return "closing"
    if connection.halted & HALT_ALARM:
        return "blocked"
    return "flow" if connection.halted & (HALT_SYNC | HALT_OUTPUT | HALT_SPILL) else "running"


def sessions(
    broker: Broker, vhost: str | None = None, user: str | None = None, name: str | None = None
) -> Iterator[ClientSession]:
    """Yield the connections that match each given filter, skipping those that have ended."""
    found = [
        link
        for link in broker.links
        if isinstance(link, ClientSession)
        and (vhost is None or link.vhost_name == vhost)
        and (user is None or link.user == user)
        and (name is None or link.name == name)
    ]
    for link in found:
        if link in broker.links:
            yield link


def connections(
    broker: Broker, vhost: str | None = None, user: str | None = None
) -> Iterator[ConnectionStats]:
    """Yield a snapshot of each connection, of one vhost or one user if given."""
    for session in sessions(broker, vhost, user):
        yield ConnectionStats(session)


def find_connection(broker: Broker, name: str, user: str | None = None) -> ClientSession | None:
    """Return the connection of that name, and of `user` if given, or None."""
    return next(sessions(broker, None, user, name), None)


@final
class Ends:
    """The connection of a channel or a consumer, as shown with each of them."""

    def __init__(self, session: ClientSession) -> None:
        self.connection: Final = session.name
        #: The name that the client gave the connection, or None.
        self.given_name: Final = (
            session.handshake.client_properties.get("connection_name")
            if isinstance(session, AmqpConnection)
            else None
        )
        self.vhost: Final = session.vhost_name
        self.peer: Final = session.peer
        self.user: Final = session.user


@final
class ChannelStats:
    """One channel; `number` is its place among others if the protocol has no channel numbers."""

    def __init__(self, ends: Ends, number: i64, state: str, channel: DeliveryChannel) -> None:
        self.ends: Final = ends
        self.number: Final = int(number)
        self.state: Final = state
        self.global_prefetch_count: Final = int(channel.prefetch_count)
        self._channel: Final = channel
        self.consumer_count: Final = len(channel.open_consumers())
        self.prefetch_count = 0
        self.unacked = int(channel.unacked_count)
        self.unconfirmed = 0
        self.confirm = False
        self.transactional = False
        self.uncommitted = 0
        self.acks_uncommitted = 0
        if isinstance(channel, ServerChannel):
            self.prefetch_count = int(channel.prefetch_next)
            self.unacked = int(channel.unacked.count)
            self.unconfirmed = int(channel.confirms.unconfirmed())
            self.confirm = channel.mode == CONFIRM
            self.transactional = channel.mode == TX
            transaction = channel.transaction
            self.uncommitted = len(transaction.publishes)
            self.acks_uncommitted = sum([len(one.unacked) for one in transaction.settles])

    @property
    def name(self) -> str:
        """The channel's name as RabbitMQ writes it."""
        return f"{self.ends.connection} ({self.number})"

    def first_consumers(self, count: int) -> list[ConsumerStats]:
        """Return the first `count` consumers of the channel, or none if it has ended."""
        found = self._channel.open_consumers()[:count]
        return [ConsumerStats(self.ends, self.number, one) for one in found]


@final
class ConsumerStats:
    """One consumer; `number` is that of its channel."""

    def __init__(self, ends: Ends, number: i64, consumer: QueueConsumer) -> None:
        self.ends: Final = ends
        self.number: Final = int(number)
        source = consumer.queue
        self.queue: Final = source.name
        self.tag: Final = consumer.tag
        self.exclusive: Final = consumer.exclusive
        self.ack_required: Final = not consumer.no_ack
        self.prefetch_count: Final = int(consumer.prefetch_count)
        self.unacked: Final = int(consumer.unacked_count)
        self.arguments: Final = consumer.arguments
        own = consumer.ack_limit_ms
        limit = source.settings.consumer_timeout_ms if own < 0 else own
        self.consumer_timeout_ms: Final = int(limit)
        active = True
        #: False if the queue has a single active consumer.
        self.shared = True
        if isinstance(source, Queue):
            self.shared = not source.single_active
            active = source.consumer_order.is_active(consumer)
        self.active: Final = active


def _number(channel: DeliveryChannel, place: i64) -> i64:
    """Return a channel's number, or its place among the others if it has none."""
    return channel.number if isinstance(channel, ServerChannel) else place


def channels(
    broker: Broker,
    vhost: str | None = None,
    user: str | None = None,
    connection: str | None = None,
) -> Iterator[ChannelStats | None]:
    """Yield a snapshot of each channel, of one vhost, user or connection if given.

    Yields None before each connection, so that a caller can pause even if very many connections
    have no channels.
    """
    for session in sessions(broker, vhost, user, connection):
        yield None
        ends = Ends(session)
        state = _state(session)
        for place, channel in enumerate(session.open_channels(), 1):
            yield ChannelStats(ends, _number(channel, place), state, channel)


def consumers(
    broker: Broker, vhost: str | None = None, user: str | None = None
) -> Iterator[ConsumerStats | None]:
    """Yield a snapshot of each consumer, of one vhost or one user if given.

    Yields None before each channel, so that a caller can pause even if very many channels have no
    consumers.
    """
    for session in sessions(broker, vhost, user):
        ends = Ends(session)
        for place, channel in enumerate(session.open_channels(), 1):
            yield None
            number = _number(channel, place)
            for consumer in channel.open_consumers():
                if consumer.channel.has(consumer):
                    yield ConsumerStats(ends, number, consumer)


def queue_consumers(broker: Broker, vhost: str, name: str, count: i64) -> list[ConsumerStats]:
    """Return the first `count` consumers of a queue, or none if the queue does not exist."""
    queue = find_queue(broker, vhost, name)
    if queue is None:
        return []
    return [
        ConsumerStats(Ends(one.channel.link), _number(one.channel, 1), one)
        for one in queue.consumers[:count]
        if isinstance(one.channel.link, ClientSession)
    ]
