"""The Spark queries that read streams, as they report themselves in their requests.

A streaming query has two kinds of processes.  The driver requests the end of a stream before each
batch, and reports the position up to which all batches are committed.  The tasks read messages, and
report the query's id and name, which only they have.  Both report the query's `run`, an id that the
driver chooses.  Over HTTP, a report is in parameters of the requests; over AMQP, it is a table in
the arguments of the consumers.

Reports are not verified, and nothing depends on them.  They are not stored on disk, because the
next batch brings new ones.

Invariants: a report needs the permission to read the stream (as its request does); users change
only their own queries; each query is booked with the memory of marks, and is dropped an hour after
its last report, or when its user has too many newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from leveret.broker.scheduler.accounts import MarkAccount
from leveret.broker.stream.stream import Stream
from leveret.limits import (
    STREAM_QUERIES_MAX,
    STREAM_QUERIES_PER_USER_MAX,
    STREAM_QUERY_NAME_CHARACTERS_MAX,
    STREAM_QUERY_SILENCE_MS,
)

if TYPE_CHECKING:
    from leveret.broker.broker import Broker
    from leveret.broker.consumers.consumer import QueueConsumer
    from leveret.broker.core import Core
    from leveret.broker.ownership import Owner
    from leveret.clock import Clock

#: The memory of a query and its entries in two tables, without its strings.
_QUERY_BYTES: Final = 900

#: The argument of a consumer that reports a query.
QUERY_ARGUMENT: Final = "x-spark-query"

#: The id of a query, or of its run.
_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")

#: The highest position of a report.
POSITION_MAX: Final = 2**62

#: A stream's number, and a run of a query.
_Key = tuple[int, str]


@dataclass(slots=True)
class StreamQuery:
    """A run of a query over one stream; fields that were not reported yet are None."""

    vhost: str
    stream: str
    queue_id: int
    owner: Owner | None
    run: str
    query_id: str | None = None
    name: str | None = None
    #: The offset after the last message of the last committed batch.
    position: int | None = None
    #: The time of the last report.
    heard_ms: int = 0
    #: The same time on the wall clock.
    heard_at_ms: int = 0

    @property
    def size(self) -> int:
        """The memory of the query in bytes."""
        return _QUERY_BYTES + len(self.run) + len(self.query_id or "") + len(self.name or "")


@dataclass(frozen=True, slots=True)
class QueryReading:
    """The metrics of a query over one stream."""

    vhost: str
    labels: Sequence[str]
    values: dict[str, int]


class StreamQueries:
    """The queries that have reported themselves to one broker."""

    def __init__(self) -> None:
        #: The queries by user, in the order of their last reports.
        self._of_users: dict[str, dict[_Key, StreamQuery]] = {}
        #: The queries by the number of their stream.
        self._of_streams: dict[int, dict[tuple[str, str], StreamQuery]] = {}
        self._count = 0
        self._account: MarkAccount | None = None

    def report(self, told: StreamQuery, core: Core, clock: Clock) -> None:
        """Update a query from a report; ignore the report of a new query beyond the limits."""
        user = _user(told)
        key = (told.queue_id, told.run)
        now_ms = clock.monotonic_ms()
        ours = self._of_users.setdefault(user, {})
        known = ours.pop(key, None)
        if known is None:
            self._expire(user, now_ms, STREAM_QUERIES_PER_USER_MAX - 1)
            if not self._has_room(core, now_ms):
                return
            self._of_users.setdefault(user, ours)
            known = told
            self._count += 1
            self._book(known.size)
        else:
            before = known.size
            known.query_id = told.query_id or known.query_id
            known.name = told.name or known.name
            known.position = known.position if told.position is None else told.position
            self._book(known.size - before)
        known.heard_ms, known.heard_at_ms = now_ms, clock.wall_ms()
        ours[key] = known
        self._of_streams.setdefault(key[0], {})[user, told.run] = known

    def note_consumer(self, clock: Clock, consumer: QueueConsumer) -> None:
        """Update a query from the report of a stream's new consumer, if it has a valid one."""
        stream, fields = consumer.queue, consumer.arguments.get(QUERY_ARGUMENT)
        if not isinstance(stream, Stream) or not isinstance(fields, dict):
            return
        run, query_id, name = fields.get("run"), fields.get("query_id"), fields.get("query_name")
        position = fields.get("position")
        if not is_id(run) or not (query_id is None or is_id(query_id)):
            return
        link = consumer.channel.link
        told = StreamQuery(
            link.vhost_name, stream.name, int(stream.queue_id), link.as_owner, run, query_id
        )
        if isinstance(name, str):
            told.name = name[:STREAM_QUERY_NAME_CHARACTERS_MAX] or None
        if isinstance(position, int) and 0 <= position <= POSITION_MAX:
            told.position = int(position)
        self.report(told, stream.core, clock)

    def of(self, queue_id: int, clock: Clock) -> list[StreamQuery]:
        """Return the last run of each query of a stream."""
        runs = self._of_streams.get(queue_id, {}).values()
        return [*_last_runs(runs, clock.monotonic_ms())]

    def readings(self, broker: Broker, clock: Clock) -> Iterator[QueryReading]:
        """Yield the metrics of the queries that have reported an id and a position."""
        for queue_id in list(self._of_streams):
            for one in self.of(queue_id, clock):
                vhost = broker.vhosts.get(one.vhost)
                stream = None if vhost is None else vhost.queues.by_name.get(one.stream)
                if one.query_id is None or one.position is None:
                    continue
                if isinstance(stream, Stream) and stream.queue_id == one.queue_id:
                    user = "" if one.owner is None else one.owner.name
                    labels = (one.vhost, one.stream, one.name or "", one.query_id, user)
                    lag = int(stream.lag(one.position))
                    values = {
                        "leveret_stream_query_position": one.position,
                        "leveret_stream_query_lag": lag,
                        "leveret_stream_query_bytes_behind": bytes_behind(stream, lag),
                    }
                    yield QueryReading(one.vhost, labels, values)

    def _has_room(self, core: Core, now_ms: int) -> bool:
        """Return whether the limits allow another query, after dropping silent ones."""
        if self._account is None:
            self._account = MarkAccount(core.accounts)
        if self._count >= STREAM_QUERIES_MAX:
            for user in list(self._of_users):
                self._expire(user, now_ms)
        return self._count < STREAM_QUERIES_MAX and self._account.has_room()

    def _expire(self, user: str, now_ms: int, most: int = STREAM_QUERIES_PER_USER_MAX) -> None:
        """Drop the silent queries of a user, and those with the oldest reports beyond `most`."""
        ours = self._of_users.get(user, {})
        while ours:
            key = next(iter(ours))
            if _is_live(ours[key], now_ms) and len(ours) <= most:
                return
            gone = ours.pop(key)
            self._count -= 1
            self._book(-gone.size)
            runs = self._of_streams[key[0]]
            del runs[user, gone.run]
            if not runs:
                del self._of_streams[key[0]]
        self._of_users.pop(user, None)

    def _book(self, size: int) -> None:
        if self._account is not None:
            self._account.book(size)


def is_id(value: object) -> TypeGuard[str]:
    """Return whether a reported value can be the id of a query or of its run."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def bytes_behind(stream: Stream, lag: int) -> int:
    """Estimate the size of the last `lag` messages of a stream by the mean of all its messages."""
    return int(stream.size) * lag // max(1, int(stream.visible_end - stream.first_offset))


def _is_live(one: StreamQuery, now_ms: int) -> bool:
    return now_ms - one.heard_ms < STREAM_QUERY_SILENCE_MS


def _user(one: StreamQuery) -> str:
    """Return the key of a query's user, or "" for the operator."""
    return "" if one.owner is None else one.owner.key


def _last_runs(runs: Iterable[StreamQuery], now_ms: int) -> Iterable[StreamQuery]:
    """Return the run of each query that reported last; a run without an id is its own query."""
    found: dict[tuple[str, str], StreamQuery] = {}
    for one in sorted(runs, key=lambda run: run.heard_ms):
        if _is_live(one, now_ms):
            found[_user(one), one.query_id or one.run] = one
    return found.values()
