"""Counts of what the broker did since its start, for metrics: they only grow.

Queues, channels and connections count for themselves, which costs the path of a message nothing
more.  Who wants totals walks over those that are there (`admin.metrics`) and adds what is kept here
of those that went.  Others have their turns during a walk.  What goes after the walk saw it is
taken off again once, by `seen`: so a walk counts each object once, and a total never falls.

No limit or decision depends on these figures.

Invariants: at most one walk goes on at a time; what has ended is added once.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.values.death_reasons import (
    REASON_DELIVERY_LIMIT,
    REASON_EXPIRED,
    REASON_MAXLEN,
    REASON_REJECTED,
)

#: The upper ends of the classes of message sizes, in bytes, as RabbitMQ has them; larger ones are
#: in a class of their own.
SIZE_CLASSES: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)


@final
class QueueCounts:
    """What queues of one type did."""

    def __init__(self) -> None:
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.delivered_no_ack: i64 = 0
        self.got: i64 = 0
        self.got_no_ack: i64 = 0
        self.got_nothing: i64 = 0
        self.redelivered: i64 = 0
        self.acked: i64 = 0

    def add(self, other: QueueCounts, sign: i64 = 1) -> None:
        """Add what another one has, or take it off where `sign` is -1."""
        self.published += sign * other.published
        self.delivered += sign * other.delivered
        self.delivered_no_ack += sign * other.delivered_no_ack
        self.got += sign * other.got
        self.got_no_ack += sign * other.got_no_ack
        self.got_nothing += sign * other.got_nothing
        self.redelivered += sign * other.redelivered
        self.acked += sign * other.acked


def counts_of(by_kind: dict[str, QueueCounts], kind: str) -> QueueCounts:
    """Return the counts of a type of queues."""
    counts = by_kind.get(kind)
    if counts is None:
        counts = by_kind[kind] = QueueCounts()
    return counts


@final
class LinkCounts:
    """What connections did; a packet is one read or write of a socket."""

    def __init__(self) -> None:
        self.published: i64 = 0
        #: Publishes on channels that confirm, and how many of them were confirmed by a basic.ack.
        self.confirming: i64 = 0
        self.confirmed: i64 = 0
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0
        self.received_packets: i64 = 0
        self.sent_packets: i64 = 0

    def add(self, other: LinkCounts, sign: i64 = 1) -> None:
        """Add what another one has, or take it off where `sign` is -1."""
        self.published += sign * other.published
        self.confirming += sign * other.confirming
        self.confirmed += sign * other.confirmed
        self.received_bytes += sign * other.received_bytes
        self.sent_bytes += sign * other.sent_bytes
        self.received_packets += sign * other.received_packets
        self.sent_packets += sign * other.sent_packets


@final
class MessageSizes:
    """The sizes of the bodies that were published, in the classes of `SIZE_CLASSES`."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        self._to_100: i64 = 0
        self._to_1k: i64 = 0
        self._to_10k: i64 = 0
        self._to_100k: i64 = 0
        self._to_1m: i64 = 0
        self._to_10m: i64 = 0
        self._to_50m: i64 = 0
        self._to_100m: i64 = 0
        self._larger: i64 = 0

    def note(self, size: i64) -> None:
        """Count a body of `size` bytes: three comparisons at most for one of 10,000 bytes."""
        self.bytes += size
        if size <= 100:
            self._to_100 += 1
        elif size <= 1_000:
            self._to_1k += 1
        elif size <= 10_000:
            self._to_10k += 1
        elif size <= 100_000:
            self._to_100k += 1
        else:
            self._note_large(size)

    def _note_large(self, size: i64) -> None:
        if size <= 1_000_000:
            self._to_1m += 1
        elif size <= 10_000_000:
            self._to_10m += 1
        elif size <= 50_000_000:
            self._to_50m += 1
        elif size <= 100_000_000:
            self._to_100m += 1
        else:
            self._larger += 1

    def classes(self) -> list[int]:
        """Return how many bodies are in each class; the last class has no upper end."""
        return [
            int(self._to_100),
            int(self._to_1k),
            int(self._to_10k),
            int(self._to_100k),
            int(self._to_1m),
            int(self._to_10m),
            int(self._to_50m),
            int(self._to_100m),
            int(self._larger),
        ]


@final
class Deaths:
    """How many messages died in queues of one type and one strategy, by the reason."""

    def __init__(self) -> None:
        self.expired: i64 = 0
        self.rejected: i64 = 0
        self.maxlen: i64 = 0
        self.delivery_limit: i64 = 0

    def note(self, reason: str) -> None:
        """Count one that died for `reason`."""
        if reason == REASON_MAXLEN:
            self.maxlen += 1
        elif reason == REASON_EXPIRED:
            self.expired += 1
        elif reason == REASON_REJECTED:
            self.rejected += 1
        elif reason == REASON_DELIVERY_LIMIT:
            self.delivery_limit += 1


@final
class Counts:
    """The counts of one broker."""

    def __init__(self) -> None:
        # Clients' connections count from their connection.open on.
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        #: Requests to declare a queue that were answered; new queues; deleted ones.
        self.queues_declared: i64 = 0
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0
        #: Messages that no queue took: dropped, or given back to their publisher.
        self.unroutable_dropped: i64 = 0
        self.unroutable_returned: i64 = 0
        #: Messages that died, by the queue's type and what it does with dead letters.
        self.deaths: dict[tuple[str, str], Deaths] = {}
        #: Letters of the strategy `at-least-once` that a queue took.
        self.letters_confirmed: i64 = 0
        #: The data directory's id, what its recovery found, and how long that took.
        self.identity = ""
        self.recovered_records: i64 = 0
        self.recovered_messages: i64 = 0
        self.recovery_ms: i64 = 0
        self.clean_stop = True
        #: Checkpoints that ended, their duration, and when the one under way began (0: none).
        self.checkpoints: i64 = 0
        self.checkpoint_ms: i64 = 0
        self.checkpoint_since_ms: i64 = 0
        #: Publishes that a quota refused.
        self.quota_refused: i64 = 0
        #: The queues that are gone, by their type, and the connections that are gone.
        self.gone_queues: dict[str, QueueCounts] = {}
        self.gone_links = LinkCounts()
        #: The number of the walk that goes on, or was the last; what it saw and is gone since.
        self.walk: i64 = 0
        self.seen_queues: dict[str, QueueCounts] = {}
        self.seen_links = LinkCounts()

    def begin_walk(self) -> i64:
        """Begin a walk over all queues and connections; return its number, by which it marks."""
        self.walk += 1
        self.seen_queues = {}
        self.seen_links = LinkCounts()
        return self.walk

    def queue_gone(self, kind: str, counts: QueueCounts, walk: i64) -> None:
        """Keep the counts of a queue that is deleted; `walk` is the one that saw it last."""
        counts_of(self.gone_queues, kind).add(counts)
        if walk == self.walk:
            counts_of(self.seen_queues, kind).add(counts)

    def link_gone(self, counts: LinkCounts, walk: i64) -> None:
        """Keep the counts of a connection that is gone; `walk` is the one that saw it last."""
        self.gone_links.add(counts)
        if walk == self.walk:
            self.seen_links.add(counts)

    def deaths_of(self, kind: str, strategy: str) -> Deaths:
        """Return the count of those that die in queues of type `kind` with that strategy."""
        key = (kind, strategy)
        found = self.deaths.get(key)
        if found is None:
            found = self.deaths[key] = Deaths()
        return found
