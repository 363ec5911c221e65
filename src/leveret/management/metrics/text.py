"""The text of metrics: by prometheus-client, which escapes what clients chose; in slices.

Importing it loads that library (0.1 s).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from leveret.management.metrics.series import COUNTER, HISTOGRAM, Series

#: What Prometheus asks an answer in this text to say.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Samples that are written before the loop does something else (about 5 ms of work).
SLICE_SAMPLES: Final = 500

#: The values of labels, and the number.
Sample = tuple[Sequence[str], float]


class Histogram:
    """The classes of one histogram: their upper ends as text, and what is in each."""

    def __init__(self, ends: Sequence[str], counts: Sequence[int], total: float) -> None:
        self.ends = [*ends, "+Inf"]
        self.counts = counts
        self.total = total


class _One(Collector):
    """A collector of one metric, for the library."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return it."""
        return [self._metric]


def clean(text: str) -> str:
    """Return a name as UTF-8 can hold it: what is none is replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def pieces(
    series: Series,
    prefix: str,
    samples: Iterable[Sample | None],
    labels: Sequence[str] | None = None,
) -> Iterator[bytes]:
    """Give the text of a series, some hundred samples at a time.

    `labels` are those of the samples, the series' own by default.  None is an object without such a
    sample: it takes time as well, so a piece of nothing but these is empty.
    """
    names = series.labels if labels is None else labels
    left = iter(samples)
    first = True
    while True:
        part = list(islice(left, SLICE_SAMPLES))
        if not part and not first:
            return
        metric = _metric(series, prefix)
        name = series.full_name(prefix)
        for values, number in filter(None, part):
            metric.add_sample(name, dict(zip(names, map(clean, values), strict=True)), number)
        yield _text(metric, first)
        first = False


def histogram(series: Series, prefix: str, labels: Mapping[str, str], found: Histogram) -> bytes:
    """Return the text of a histogram."""
    metric = _metric(series, prefix)
    name = series.full_name(prefix)
    count = 0
    for end, number in zip(found.ends, found.counts, strict=True):
        count += number
        metric.add_sample(f"{name}_bucket", {**labels, "le": end}, count)
    metric.add_sample(f"{name}_count", dict(labels), count)
    metric.add_sample(f"{name}_sum", dict(labels), found.total)
    return _text(metric, True)


def _metric(series: Series, prefix: str) -> Metric:
    name = series.full_name(prefix)
    if series.kind == COUNTER:
        name = name.removesuffix("_total")
    assert series.kind != HISTOGRAM or not series.name.endswith("_total")
    return Metric(name, series.help, series.kind)


def _text(metric: Metric, begins: bool) -> bytes:
    """Return the text of a metric, without its head where that came before."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One(metric))
    text = generate_latest(registry)
    return text if begins else text.split(b"\n", 2)[2]
