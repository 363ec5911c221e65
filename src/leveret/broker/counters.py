"""Counters of the broker since its start, for metrics; they only grow.

Queues, channels and connections have their own counters, so that totals cost nothing on the path of
a message.  For totals, `stats.metrics` walks over all live objects and adds the counters kept here
for objects that are gone.  Other work runs in between.  If an object is deleted after the walk has
counted it, its counters are subtracted once, by means of `seen_queues` and `seen_links`.  So a walk
counts each object once, and a total never falls.

No limit or decision depends on these figures.

Invariants: at most one walk runs at a time; the counters of an object that is gone are added once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

#: The upper bounds of the message size classes, in bytes, as in RabbitMQ; larger messages have a
#: class of their own.
SIZE_CLASSES: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)


@final
class QueueCounts:
    """The counters of all queues of one type."""

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
        """Add another object's counters, or subtract them if `sign` is -1."""
        self.published += sign * other.published
        self.delivered += sign * other.delivered
        self.delivered_no_ack += sign * other.delivered_no_ack
        self.got += sign * other.got
        self.got_no_ack += sign * other.got_no_ack
        self.got_nothing += sign * other.got_nothing
        self.redelivered += sign * other.redelivered
        self.acked += sign * other.acked


def counts_of(by_kind: dict[str, QueueCounts], kind: str) -> QueueCounts:
    """Return the counters of a queue type."""
    counts = by_kind.get(kind)
    if counts is None:
        counts = by_kind[kind] = QueueCounts()
    return counts


@final
class LinkCounts:
    """The counters of connections; a packet is one read or write of a socket."""

    def __init__(self) -> None:
        self.published: i64 = 0
        #: Publishes on channels in confirm mode, and how many of them were confirmed by a
        #: basic.ack.
        self.confirming: i64 = 0
        self.confirmed: i64 = 0
        self.received_bytes: i64 = 0
        self.sent_bytes: i64 = 0
        self.received_packets: i64 = 0
        self.sent_packets: i64 = 0

    def add(self, other: LinkCounts, sign: i64 = 1) -> None:
        """Add another object's counters, or subtract them if `sign` is -1."""
        self.published += sign * other.published
        self.confirming += sign * other.confirming
        self.confirmed += sign * other.confirmed
        self.received_bytes += sign * other.received_bytes
        self.sent_bytes += sign * other.sent_bytes
        self.received_packets += sign * other.received_packets
        self.sent_packets += sign * other.sent_packets


@final
class MessageSizes:
    """The sizes of published bodies, in the classes of `SIZE_CLASSES`."""

    def __init__(self) -> None:
        self.bytes: i64 = 0
        self._to_100: i64 = 0
        self._to_1k: i64 = 0
        self._to_10k: i64 = 0
        self._to_100k: i64 = 0
        #: The larger classes.
        self._larger: Final = [0] * (len(SIZE_CLASSES) - 3)

    def note(self, size: i64) -> None:
        """Count a body of `size` bytes, with at most three comparisons up to 10,000 bytes."""
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
            self._larger[bisect_left(SIZE_CLASSES, size) - 4] += 1

    def classes(self) -> list[int]:
        """Return how many bodies are in each class; the last class has no upper bound."""
        return [
            int(self._to_100),
            int(self._to_1k),
            int(self._to_10k),
            int(self._to_100k),
            *self._larger,
        ]


@final
class Counts:
    """The counters of one broker."""

    def __init__(self) -> None:
        # Client connections count once they have sent connection.open.
        self.connections_opened: i64 = 0
        self.connections_closed: i64 = 0
        self.channels_opened: i64 = 0
        self.channels_closed: i64 = 0
        #: Requests to declare a queue that were answered; new queues; deleted ones.
        self.queues_declared: i64 = 0
        self.queues_created: i64 = 0
        self.queues_deleted: i64 = 0
        #: Messages that were routed to no queue: dropped, or returned to their publisher.
        self.unroutable_dropped: i64 = 0
        self.unroutable_returned: i64 = 0
        #: Dead messages, by the queue's type and its dead-letter strategy, then by the reason.
        self.deaths: dict[tuple[str, str], dict[str, int]] = {}
        #: Dead letters of the strategy `at-least-once` that a queue confirmed.
        self.letters_confirmed: i64 = 0
        #: The data directory's id, the result of its recovery, and how long it took.
        self.identity = ""
        self.recovered_records: i64 = 0
        self.recovered_messages: i64 = 0
        self.recovery_ms: i64 = 0
        self.clean_stop = True
        #: Checkpoints that ended, their duration, and when the current one began (0 for none).
        self.checkpoints: i64 = 0
        self.checkpoint_ms: i64 = 0
        self.checkpoint_since_ms: i64 = 0
        #: Publishes that were refused by a quota.
        self.quota_refused: i64 = 0
        #: The counters of deleted queues, by their type, and of closed connections.
        self.gone_queues: dict[str, QueueCounts] = {}
        self.gone_links = LinkCounts()
        #: The number of the current or last walk, and the counters of objects that were removed
        #: after it counted them.
        self.walk: i64 = 0
        self.seen_queues: dict[str, QueueCounts] = {}
        self.seen_links = LinkCounts()

    def begin_walk(self) -> i64:
        """Begin a walk over all queues and connections; return the walk's number."""
        self.walk += 1
        self.seen_queues = {}
        self.seen_links = LinkCounts()
        return self.walk

    def queue_gone(self, kind: str, counts: QueueCounts, walk: i64) -> None:
        """Keep the counters of a deleted queue; `walk` is the last walk that counted it."""
        counts_of(self.gone_queues, kind).add(counts)
        if walk == self.walk:
            counts_of(self.seen_queues, kind).add(counts)

    def link_gone(self, counts: LinkCounts, walk: i64) -> None:
        """Keep the counters of a closed connection; `walk` is the last walk that counted it."""
        self.gone_links.add(counts)
        if walk == self.walk:
            self.seen_links.add(counts)
