"""Formats rates and histories as in RabbitMQ's API.

The query options `msg_rates_age` and `msg_rates_incr` (seconds) request samples of the message
counters, `lengths_age` and `lengths_incr` samples of the queue lengths, and `node_stats_age` and
`node_stats_incr` samples of the counts of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.limits import SAMPLE_POINTS_MAX
from leveret.management.sampling.series import Samples

Row = dict[str, object]

#: RabbitMQ's names of message counters, and the counts that each one sums up.
_DONE: Final = {
    "publish": ("publish",),
    "deliver": ("deliver",),
    "deliver_no_ack": ("deliver_no_ack",),
    "get": ("get",),
    "get_no_ack": ("get_no_ack",),
    "get_empty": ("get_empty",),
    "deliver_get": ("deliver", "deliver_no_ack", "get", "get_no_ack"),
    "redeliver": ("redeliver",),
    "ack": ("ack",),
}

#: The same for the counters of connections and of unroutable messages.
_OF_CLIENTS: Final = {
    "publish": ("client_publish",),
    "confirm": ("confirm",),
    "return_unroutable": ("return_unroutable",),
    "drop_unroutable": ("drop_unroutable",),
}

#: The same for queue lengths.
_LENGTHS: Final = {
    "messages": ("messages_ready", "messages_unacknowledged"),
    "messages_ready": ("messages_ready",),
    "messages_unacknowledged": ("messages_unacknowledged",),
}

#: The maximum number of digits of a number of seconds.
_DIGITS_MAX: Final = 8


@dataclass(frozen=True)
class Age:
    """The age of the oldest requested sample, and the interval of samples (ms)."""

    age_ms: int
    step_ms: int


@dataclass(frozen=True)
class Ages:
    """The samples that a request asks for."""

    rates: Age | None
    lengths: Age | None
    node: Age | None

    @property
    def any(self) -> bool:
        """Return whether the request asks for samples."""
        return self.rates is not None or self.lengths is not None or self.node is not None


def asked_ages(query: Mapping[str, str]) -> Ages:
    """Return the samples that a query asks for.  Raises: PreconditionFailed (400 in HTTP)."""
    return Ages(_age(query, "msg_rates"), _age(query, "lengths"), _age(query, "node_stats"))


def _age(query: Mapping[str, str], name: str) -> Age | None:
    age, step = query.get(f"{name}_age"), query.get(f"{name}_incr")
    if age is None or step is None:
        return None
    numbers = [
        int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else 0
        for text in (age, step)
    ]
    if numbers[0] < 1 or numbers[1] < 1:
        raise PreconditionFailed(f"{name}_age and {name}_incr must be whole seconds, 1 or more")
    if numbers[0] // numbers[1] > SAMPLE_POINTS_MAX:
        raise PreconditionFailed(
            f"{name}_age and {name}_incr ask for more than {SAMPLE_POINTS_MAX} samples"
        )
    return Age(numbers[0] * 1000, numbers[1] * 1000)


def rates_known(series: Samples | None, now_ms: int) -> bool:
    """Return whether rates are known, so that a rate of 0 means no activity."""
    return series is not None and series.has_rates(now_ms)


def message_stats(
    counts: Mapping[str, int], series: Samples | None, ages: Ages, now_ms: int
) -> Row:
    """Return the message counters, each with its rate and the requested samples."""
    return _stats(_DONE, counts, series, ages, now_ms)


def broker_stats(counts: Mapping[str, int], series: Samples | None, ages: Ages, now_ms: int) -> Row:
    """Return the counters of a whole broker, where a publish counts once, not for each queue."""
    return _stats({**_DONE, **_OF_CLIENTS}, counts, series, ages, now_ms)


def _stats(
    done: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    series: Samples | None,
    ages: Ages,
    now_ms: int,
) -> Row:
    found: Row = {}
    for name, parts in done.items():
        found[name] = count = sum(counts[part] for part in parts)
        found[f"{name}_details"] = _details(series, parts, count, ages.rates, now_ms, False)
    return found


def lengths(ready: int, unacked: int, series: Samples | None, ages: Ages, now_ms: int) -> Row:
    """Return the queue lengths, each with its rate and the requested samples."""
    counts = {"messages_ready": ready, "messages_unacknowledged": unacked}
    found: Row = {}
    for name, parts in _LENGTHS.items():
        found[name] = count = sum(counts[part] for part in parts)
        found[f"{name}_details"] = _details(series, parts, count, ages.lengths, now_ms, True)
    return found


def node_stats(counts: Mapping[str, int], series: Samples, ages: Ages, now_ms: int) -> Row:
    """Return the counts of the node, each with its rate and the requested samples."""
    found: Row = {}
    for name, count in counts.items():
        found[name] = count
        found[f"{name}_details"] = _details(series, (name,), count, ages.node, now_ms, True)
    return found


def _details(
    series: Samples | None,
    parts: Sequence[str],
    count: int,
    age: Age | None,
    now_ms: int,
    mean: bool,
) -> Row:
    """Return the rate of the sum of some counts, and its samples, newest first.

    `count` is the current sum.
    """
    details: Row = {"rate": 0.0 if series is None else series.rate(parts, count, now_ms)}
    if age is None or series is None:
        return details
    points = series.points(parts, age.age_ms, age.step_ms, now_ms)
    details["samples"] = [{"sample": value, "timestamp": at} for at, value in points]
    seconds = (points[0][0] - points[-1][0]) / 1000 if points else 0.0
    grown = points[0][1] - points[-1][1] if points else 0
    details["avg_rate"] = grown / seconds if seconds else 0.0
    if mean:
        values = [value for _, value in points]
        details["avg"] = sum(values) / len(values) if values else 0.0
    return details
