"""The result of the report job: totals, and the rows and keys with the most messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.pages.bars import Bar


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """The messages of one exchange and routing key in one window, or without a known time.

    Sizes are those of bodies, in bytes.  The latency is the time from the publisher's timestamp,
    which has only whole seconds, to the broker's; it is None if no message has both.
    """

    window_start: datetime | None
    exchange: str
    routing_key: str
    messages: int
    bytes: int
    size_p50: int
    size_p99: int
    latency_p50_ms: int | None = None
    latency_p99_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a report: totals, and the rows and keys with the most messages.

    `rows` are ordered by time, and `keys` by the number of messages.
    """

    source: str
    window_seconds: int
    messages: int
    bytes: int
    rows: tuple[TrafficRow, ...]
    rows_total: int
    keys: tuple[TrafficRow, ...]
    keys_total: int
    bars: tuple[Bar, ...]
    bar_seconds: int
