"""The result of the lifecycle job: queues with their stages, and stuck messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

STAGES: Final = ("routing", "waiting", "handling", "whole")


@dataclass(frozen=True, slots=True)
class Latency:
    """One stage of the lives in one queue: how many messages passed it, and quantiles in ms."""

    messages: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class QueueLife:
    """The lives of messages in one queue: their outcomes, and the durations of the stages.

    `cleared` messages ended by a purge or with the queue; `open` have not ended, and `stuck` of
    those are too old.  The beginning of `cut` is not in the data.  `oldest_waiting_ms` is the age
    of the oldest message that waits to be delivered, or None.
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
    """A stuck message: its last event, and the time of that."""

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
    """The result: `queues` with the most messages first, `stuck` the oldest first.

    `messages` counts those of all queues; `published` and `unroutable` are of the sample of
    publishes, and `published_to_streams` counts those of `published` that reached only streams and
    so added no message to a queue.  `first` and `last` are the times of the oldest and the newest
    event, and `now` is the present time, by which messages wait or are stuck.
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
