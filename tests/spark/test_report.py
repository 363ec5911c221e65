"""The report: its counts are those of a plain count, from a stream and from its archive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leveret.client import BasicProperties
from leveret.pipelines import archive, report
from leveret.pipelines.pages.bars import BANDS_MAX
from support.spark.live_stream import LiveStream, Sent

HOSTILE = "<script>alert(1)</script>"


def messages() -> list[Sent]:
    """Return messages of twelve keys over three minutes."""
    return [
        Sent(
            b"x" * (number % 7),
            HOSTILE if number % 12 == 0 else f"key.{number % 12}",
            BasicProperties(timestamp=1_700_000_000 + number),
        )
        for number in range(180)
    ]


def test_counts_are_those_of_a_plain_count(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    sent = messages()
    stream.publish(sent)
    page = tmp_path / "report.html"
    found = report(spark, uri=stream.uri, stream=stream.name, window="1 minute", html_path=page)
    assert (found.messages, found.bytes) == (180, sum(len(s.body) for s in sent))
    counts = Counter(s.routing_key for s in sent)
    assert {key.routing_key: key.messages for key in found.keys} == counts
    assert {key.exchange for key in found.keys} == {stream.exchange}
    assert (found.keys_total, found.rows_total) == (12, len(found.rows))
    for key in found.keys:
        of_key = sorted(len(s.body) for s in sent if s.routing_key == key.routing_key)
        assert key.size_p50 in of_key[len(of_key) // 2 - 1 : len(of_key) // 2 + 1]
        assert key.size_p99 == of_key[-1]
        if key.latency_p50_ms is not None:  # RabbitMQ gives no time of its own
            assert 0 < key.latency_p50_ms <= (key.latency_p99_ms or 0)
    by_key: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in found.rows:
        by_key[row.routing_key] += row.messages
        sizes[row.routing_key] += row.bytes
    assert by_key == counts
    assert sum(bar.count for bar in found.bars) == 180
    assert max(bar.rank for bar in found.bars) == BANDS_MAX
    assert [row.window_start for row in found.rows] == sorted(
        row.window_start for row in found.rows if row.window_start
    )
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert HOSTILE.replace("<", "\\u003c").replace(">", "\\u003e") in text
    assert f"leveret pipeline report --stream {stream.name}" in text
    archive(spark, stream.uri, stream.name, tmp_path / "archive")
    filed = report(spark, path=tmp_path / "archive", stream=stream.name)
    assert (filed.rows, filed.keys, filed.bars) == (found.rows, found.keys, found.bars)
    assert report(spark, path=tmp_path / "archive", stream="another").messages == 0


def test_an_empty_stream_is_an_empty_report(
    spark: SparkSession, stream: LiveStream, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    found = report(spark, uri=stream.uri, stream=stream.name, html_path=page)
    assert (found.messages, found.bytes, found.rows, found.bars) == (0, 0, (), ())
    assert '"seconds":[]' in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "source", [{}, {"uri": "amqp://"}, {"stream": "s"}, {"uri": "amqp://", "path": "p"}]
)
def test_a_report_is_on_one_source(spark: SparkSession, source: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"a stream .* or from an archive"):
        report(spark, **source)  # type: ignore[arg-type]  # any of its texts
