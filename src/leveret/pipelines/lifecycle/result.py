"""The result of the lifecycle job: queues with their stages, and stuck messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

STAGES: Final = ("routing", "waiting", "handling", "whole")


@dataclass(frozen=True, slots=True)
class Latency:
    """One stage in one queue: the number of messages that completed it, and quantiles in ms."""

    messages: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class QueueLife:
    """The messages of one queue: their outcomes, and the durations of the stages.

    `cleared` counts messages that were removed by a purge or with the queue, `open` those that have
    not ended, `stuck` the open messages without a recent event, and `cut` messages whose first
    events are missing.  `oldest_waiting_ms` is the age of the oldest message that waits for
    delivery, or None.
    """

    vhost: str
    queue: str
    messages: int
    acked: int
    dead_lettered: int
    expired: int
    dropped: int
    cleared: int
    open: int
    stuck: int
    cut: int
    redelivered: int
    stages: Mapping[str, Latency]
    oldest_waiting_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Stuck:
    """A stuck message, with its last event and the time of that event."""

    vhost: str
    queue: str
    sequence: int
    exchange: str
    routing_key: str
    message_id: str | None
    last_event: str
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The result: `queues` with the most messages first, `stuck` messages with the oldest first.

    `messages` is the number of messages in all queues.  `published` and `unroutable` count sampled
    publishes, and `published_to_streams` those of `published` that reached only streams, and so
    added no message to a queue.  `first` and `last` are the times of the oldest and the newest
    event.  `now` is the current time, from which the ages of messages are computed.
    """

    source: str
    events: int
    unreadable: int
    published: int
    unroutable: int
    queues: tuple[QueueLife, ...]
    queues_total: int
    messages: int
    stuck: tuple[Stuck, ...]
    stuck_total: int
    first: datetime | None
    last: datetime | None
    published_to_streams: int = 0
    now: datetime | None = None
