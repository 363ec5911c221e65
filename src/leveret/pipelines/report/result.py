"""The result of the traffic report: totals, and the parts with the most messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from leveret.pipelines.pages.bars import Bar


@dataclass(frozen=True, slots=True)
class TrafficRow:
    """Messages of one exchange and routing key in one window; without a window the time is unknown.

    Sizes are of bodies, in bytes.  The latency is from the publisher's timestamp, which has whole
    seconds only, to the broker's; None if a message does not have both.
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
    """The result of a report: totals over everything, and the parts with the most messages.

    `rows` are in order of time, `keys` in order of their messages.
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
