"""Snapshots of streams, super streams and readers of streams, by the rules of `stats`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.broker import Broker
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.stream.stream import Stream
from leveret.broker.super_streams.super_stream import (
    find_super_stream,
    partition_arguments,
    partitions_of,
    waiting_in,
)
from leveret.broker.vhost.vhost import Vhost


@final
class StreamStats:
    """A stream, with messages from `first_offset` up to, but not including, `next_offset`."""

    def __init__(self, stream: Stream) -> None:
        first: i64 = stream.first_offset
        end: i64 = max(stream.visible_end, first)
        self.name: Final = stream.name
        self.stream_id: Final = stream.stream_id
        self.first_offset: Final = int(first)
        self.next_offset: Final = int(end)
        self.bytes: Final = int(stream.size)


def stream_rows(vhost: Vhost) -> Iterator[StreamStats]:
    """Yield the streams of a vhost."""
    for queue in list(vhost.queues.by_name.values()):
        if isinstance(queue, Stream) and not queue.hidden and not queue.deleted:
            yield StreamStats(queue)


@final
class NamedReaderStats:
    """A reader name of a stream, and its current reader."""

    def __init__(self, stream: Stream, name: str) -> None:
        group = stream.offsets.groups.get(name)
        stored = stream.offsets.stored.get(name)
        self.name: Final = name
        self.owner: Final = stream.offsets.owners.get(name)
        #: The stored offset, or None while a timestamp is being looked up.
        self.offset: Final = stored
        #: The number of messages not processed yet.
        self.lag: Final = None if stored is None else int(stream.lag(stored))
        self.consumer_count: Final = 0 if group is None else len(group.consumers)
        self.unacked_count: Final = 0 if group is None else len(group.unsettled)
        #: The consumer that receives the messages: the name of its connection, and its tag.
        active = None if group is None else group.active()
        self.active: Final = None if active is None else (active.channel.link.name, active.tag)


def named_reader_rows(stream: Stream) -> Iterator[NamedReaderStats]:
    """Yield the reader names of one stream, without names that are forgotten before their turn."""
    offsets = stream.offsets
    for name in sorted({**offsets.stored, **offsets.groups}):
        if name in offsets.stored or name in offsets.groups:
            yield NamedReaderStats(stream, name)


@final
class SuperStreamStats:
    """A super stream with totals over its partitions."""

    def __init__(self, vhost: Vhost, exchange: Exchange) -> None:
        streams = partitions_of(vhost, exchange)
        self.vhost: Final = vhost.name
        self.name: Final = exchange.name
        #: The names of the existing partitions, in order.
        self.partitions: Final = [stream.name for stream in streams]
        #: The arguments of each partition.
        self.arguments: Final = partition_arguments(streams)
        self.messages: Final = waiting_in(streams)
        self.bytes: Final = sum([int(stream.ready_bytes()) for stream in streams])
        self.consumer_count: Final = sum([len(stream.consumers) for stream in streams])


def super_stream_stats(vhost: Vhost, name: str) -> SuperStreamStats | None:
    """Return a super stream, or None if it does not exist."""
    exchange = find_super_stream(vhost, name)
    return None if exchange is None else SuperStreamStats(vhost, exchange)


def super_stream_rows(
    broker: Broker, vhost_name: str, names: list[str]
) -> Iterator[SuperStreamStats]:
    """Yield the super streams of a vhost with the given names, if they exist."""
    for name in names:
        vhost = broker.vhosts.get(vhost_name)
        one = None if vhost is None else super_stream_stats(vhost, name)
        if one is not None:
            yield one
