"""Totals over all queues for metrics, collected in parts.

The counters never decrease.  `counters` explains how a walk counts each queue once, even if queues
are deleted during the walk.  The levels (`QueueLevels`) are those of each queue at the time of its
visit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.backlog.priorities import PriorityReady
from leveret.broker.backlog.window import NOTHING
from leveret.broker.broker import Broker
from leveret.broker.counters import QueueCounts, counts_of
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.stream.stream import Stream
from leveret.wire.properties import property_timestamp

#: The latest timestamp shown, in the year 9999.
TIMESTAMP_MAX: Final = 253_402_300_799

#: The stream reader names that cost a walk as much as a queue, and the queues visited at once.
_NAMES_LIKE_QUEUE: Final = 4
_SEEN_AT_ONCE: Final = 8


@final
class QueueLevels:
    """The contents of queues: messages and their bytes (bodies and properties), and consumers."""

    def __init__(self) -> None:
        self.queues: i64 = 0
        self.consumers: i64 = 0
        self.ready: i64 = 0
        self.ready_bytes: i64 = 0
        #: The ready messages that wait for their retry.
        self.retried: i64 = 0
        self.unacked: i64 = 0
        self.unacked_bytes: i64 = 0
        #: Estimates if a durable queue has both persistent and transient messages.
        self.persistent: i64 = 0
        self.persistent_bytes: i64 = 0
        #: The messages in memory.
        self.ram: i64 = 0
        self.ram_bytes: i64 = 0
        #: The unacked messages in memory, and the memory booked for all queues.
        self.unacked_ram: i64 = 0
        self.booked: i64 = 0
        #: Messages of queues that are only on disk.
        self.paged_out: i64 = 0
        #: Queues with a consumer that can take a message now, and empty queues with consumers.
        self.able: i64 = 0
        #: Reader names of streams, and the messages that they have not processed: the total and the
        #: maximum of one reader.
        self.readers: i64 = 0
        self.lag: i64 = 0
        self.lag_max: i64 = 0
        #: The oldest timestamp of the first message of a queue (Unix epoch, seconds), or -1.
        self.head: i64 = -1

    def add(self, queue: Queue) -> None:
        """Add the contents of a queue or a stream."""
        self.queues += 1
        self.consumers += len(queue.consumers)
        self.booked += queue.booked
        retried: i64 = queue.retry_count()
        ready: i64 = queue.ready_count() + retried
        unacked = queue.unacked_count
        if ready == 0 and unacked == 0:
            # Of very many queues, most are empty.
            self.able += 1 if queue.consumers else 0
            if isinstance(queue, Stream):
                self._add_readers(queue)
            return
        ready_bytes: i64 = queue.ready_bytes() + queue.retry_bytes()
        unacked_bytes = queue.unacked_bytes
        self.ready += ready
        self.retried += retried
        self.ready_bytes += ready_bytes
        self.unacked += unacked
        self.unacked_bytes += unacked_bytes
        self.able += 1 if is_able(queue) else 0
        head = head_timestamp(queue) if ready > 0 else -1
        if head >= 0 and (self.head < 0 or head < self.head):
            self.head = head
        if isinstance(queue, Stream):
            self.persistent += ready
            self.persistent_bytes += ready_bytes
            self._add_readers(queue)
            return
        share = persistent_share(queue)
        self.persistent += i64(int(share * float(ready + unacked)))
        self.persistent_bytes += i64(int(share * float(ready_bytes + unacked_bytes)))
        self.paged_out += queue.ready_count() - queue.memory_count()
        self.unacked_ram += unacked
        self.ram += queue.memory_count() + queue.retry_count() + unacked
        self.ram_bytes += queue.memory_bytes() + queue.retry_bytes() + unacked_bytes

    def _add_readers(self, stream: Stream) -> None:
        for offset in stream.offsets.stored.values():
            lag = stream.lag(i64(offset))
            self.readers += 1
            self.lag += lag
            self.lag_max = max(self.lag_max, lag)


def persistent_share(queue: Queue) -> float:
    """Return the share of a queue's messages that survives a restart, estimated from publishes."""
    target = queue.target
    if not queue.recorded:
        return 0.0
    if target.transient == 0 or target.published == 0:
        return 1.0
    return max(0.0, 1.0 - float(target.transient) / float(target.published))


def head_timestamp(queue: Queue) -> i64:
    """Return the timestamp of the first message in seconds, or -1 if none or not in memory."""
    if not isinstance(queue, WaitingQueue):
        return -1
    ready = queue.ready
    pages = ready.fifo
    if isinstance(ready, PriorityReady) or (pages is not None and pages.active):
        return -1
    sequence = ready.first_in_memory()
    if sequence == NOTHING:
        return -1
    found = ready.look(sequence)
    if found is None:
        return -1
    seconds = property_timestamp(found.message.properties)
    # A publisher can send any 64 bits.
    return -1 if seconds is None or not 0 <= seconds <= TIMESTAMP_MAX else i64(seconds)


def is_able(queue: Queue) -> bool:
    """Return whether a consumer can take a message now, or the queue has consumers and is empty."""
    consumers = queue.consumers
    if not consumers:
        return False
    if queue.ready_count() == 0:
        return True
    for consumer in consumers[:8]:
        if consumer.ready():
            return True
    return False


@final
class QueueWalk:
    """A walk over all queues; `number` is the result of `Counts.begin_walk`.

    After the walk, `finish` returns the counters by type.
    """

    def __init__(self, broker: Broker, number: i64) -> None:
        self._broker: Final = broker
        self._number: Final[i64] = number
        #: The number of queues visited.
        self.size: i64 = 0
        self.levels: Final = QueueLevels()
        #: The counters of existing queues that are not listed.
        self.unlisted: Final = QueueCounts()
        self._seen: Final[dict[str, QueueCounts]] = {}

    def see_all(self) -> Iterator[int]:
        """Visit all queues; yield the number of queues visited at once."""
        seen = 0
        for vhost in list(self._broker.vhosts.values()):
            replies = list(vhost.queues.replies.queues.values())
            for queues in chain([replies], vhost.queues.by_name.in_parts()):
                self.size += len(queues)
                # Addresses of direct reply-to count, but are not queues.
                is_queue = queues is not replies
                for queue in queues:
                    seen += 1
                    if not queue.deleted:
                        self._see(queue, is_queue)
                        if isinstance(queue, Stream):
                            seen += len(queue.offsets.stored) // _NAMES_LIKE_QUEUE
                    if seen >= _SEEN_AT_ONCE:
                        yield seen
                        seen = 0

    def _see(self, queue: Queue, is_queue: bool) -> None:
        queue.walk = self._number
        queue.add_counts(counts_of(self._seen, queue.kind))
        if is_queue and not queue.hidden:
            self.levels.add(queue)
        else:
            queue.add_counts(self.unlisted)

    def finish(self) -> dict[str, QueueCounts]:
        """Return the counters of each queue type since startup, including deleted queues."""
        counts = self._broker.core.counts
        found: dict[str, QueueCounts] = {}
        for kind in ("classic", "quorum", "stream"):
            total = found[kind] = QueueCounts()
            for part, sign in (
                (self._seen.get(kind), 1),
                (counts.gone_queues.get(kind), 1),
                (counts.seen_queues.get(kind), -1),
            ):
                if part is not None:
                    total.add(part, i64(sign))
        return found


@final
class QueueRow:
    """One queue, with its contents and its counters."""

    def __init__(self, vhost: str, queue: Queue) -> None:
        self.vhost: Final = vhost
        self.name: Final = str(queue.name)
        self.kind: Final = queue.kind
        self.counts: Final = QueueCounts()
        queue.add_counts(self.counts)
        self.levels: Final = QueueLevels()
        self.levels.add(queue)


@final
class ReaderRow:
    """A reader name of a stream, with its stored offset."""

    def __init__(self, vhost: str, stream: Stream, name: str, offset: int) -> None:
        self.vhost: Final = vhost
        self.stream: Final = str(stream.name)
        self.name: Final = name
        self.offset: Final = offset
        self.lag: Final = int(stream.lag(i64(offset)))


@final
class QueueRows:
    """The queues of some vhosts, or of all, with the readers of their streams.

    Queues and readers beyond `limit` are only counted, in `omitted` and `readers_omitted`.
    """

    def __init__(self, broker: Broker, vhosts: list[str] | None, limit: int) -> None:
        self.rows: Final[list[QueueRow]] = []
        self.readers: Final[list[ReaderRow]] = []
        self.omitted = 0
        self.readers_omitted = 0
        self._broker: Final = broker
        self._vhosts: Final = vhosts
        self._limit: Final = limit

    def take_all(self) -> Iterator[int]:
        """Add all queues; yield the number added at once."""
        for vhost in list(self._broker.vhosts.values()):
            if self._vhosts is not None and vhost.name not in self._vhosts:
                continue
            for queues in vhost.queues.by_name.in_parts():
                for queue in queues:
                    if not queue.hidden and not queue.deleted:
                        yield self._take(vhost.name, queue)

    def _take(self, vhost: str, queue: Queue) -> int:
        """Add a queue; return how many queues it costs as much as."""
        if len(self.rows) < self._limit:
            self.rows.append(QueueRow(vhost, queue))
        else:
            self.omitted += 1
        if not isinstance(queue, Stream):
            return 1
        self._take_readers(vhost, queue)
        return 1 + len(queue.offsets.stored) // _NAMES_LIKE_QUEUE

    def _take_readers(self, vhost: str, stream: Stream) -> None:
        for name, offset in stream.offsets.stored.items():
            if len(self.readers) < self._limit:
                self.readers.append(ReaderRow(vhost, stream, name, offset))
            else:
                self.readers_omitted += 1
