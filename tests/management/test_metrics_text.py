"""The text of metrics beside the one that prometheus-client writes of the same samples."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from leveret.management.metrics import series as table
from leveret.management.metrics.series import COUNTER, GAUGE, UNTYPED, MetricSeries
from leveret.management.metrics.text import SLICE_SAMPLES, Histogram, Sample, histogram, pieces

_LABELS = ("vhost", "queue", "a")

_NAMES = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\\"\n{},= '))

_NUMBERS = st.integers(-(2**63), 2**63) | st.floats()


class _One(Collector):
    """A collector of one metric, for the library."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def expected(metric: Metric) -> bytes:
    """Return what the library writes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_One(metric))
    return generate_latest(registry)


@pytest.mark.parametrize(
    ("name", "kind"), [("depth", GAUGE), ("published_total", COUNTER), ("identity_info", UNTYPED)]
)
@given(samples=st.lists(st.tuples(st.tuples(_NAMES, _NAMES, _NAMES), _NUMBERS), max_size=5))
def test_the_text_is_that_of_the_library(name: str, kind: str, samples: list[Sample]) -> None:
    series = MetricSeries(name, kind, "What it is", _LABELS)
    metric = Metric(f"rabbitmq_{name}".removesuffix("_total"), series.help, kind)
    for values, number in samples:
        metric.add_sample(f"rabbitmq_{name}", dict(zip(_LABELS, values, strict=True)), number)
    assert b"".join(pieces(series, "rabbitmq_", samples)) == expected(metric)


def test_a_long_series_has_its_head_once() -> None:
    series = MetricSeries("depth", GAUGE, "What waits")
    samples: list[Sample] = [((), float(number)) for number in range(2 * SLICE_SAMPLES + 1)]
    metric = Metric("rabbitmq_depth", series.help, GAUGE)
    for _, number in samples:
        metric.add_sample("rabbitmq_depth", {}, number)
    found = list(pieces(series, "rabbitmq_", samples))
    assert len(found) == 3
    assert b"".join(found) == expected(metric)


@given(counts=st.lists(st.integers(0, 2**63), min_size=3, max_size=3), total=_NUMBERS)
def test_a_histogram_is_that_of_the_library(counts: list[int], total: float) -> None:
    series = MetricSeries("sizes", table.HISTOGRAM, "How large")
    metric = Metric("rabbitmq_sizes", series.help, table.HISTOGRAM)
    for end, count in (
        ("100.0", counts[0]),
        ("1e+06", sum(counts[:2])),
        ("+Inf", sum(counts)),
    ):
        metric.add_sample("rabbitmq_sizes_bucket", {"protocol": "amqp091", "le": end}, count)
    metric.add_sample("rabbitmq_sizes_count", {"protocol": "amqp091"}, sum(counts))
    metric.add_sample("rabbitmq_sizes_sum", {"protocol": "amqp091"}, total)
    found = Histogram(("100.0", "1e+06"), counts, total)
    assert histogram(series, "rabbitmq_", {"protocol": "amqp091"}, found) == expected(metric)


def test_no_text_of_help_needs_an_escape() -> None:
    """They are written as they stand."""
    every = {**table.AGGREGATED, **table.MEMORY, **table.LEVERET, **table.ACCOUNT}
    for family in table.PER_OBJECT.values():
        every.update(family)
    for one in every.values():
        assert not set(one.help) & set("\\\n")
