"""The lag of a query, from progress as Spark reports it."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from leveret.spark.lag import Lag, metrics_in
from leveret.spark.listener import LagListener, lag_of
from leveret.spark.offsets import with_latest
from leveret.spark.versions import offset_in_progress

QUERY = "3fbbbe5d-4a4d-4c3f-8a2f-2b1b9d6d9f01"


def progress(*sources: tuple[object, object]) -> StreamingQueryProgress:
    """Return a batch's progress over sources with an end and a latest offset each."""
    report: dict[str, Any] = {
        "id": QUERY,
        "runId": QUERY,
        "name": "orders to lake",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 7,
        "batchDuration": 5,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "observedMetrics": {},
        "sources": [
            {
                "description": "leveret",
                "startOffset": json.dumps(end),
                "endOffset": json.dumps(end),
                "latestOffset": json.dumps(latest),
                "numInputRows": 1,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "metrics": {},
            }
            for end, latest in sources
        ],
        "sink": {"description": "noop", "numOutputRows": 1, "metrics": {}},
    }
    return StreamingQueryProgress.fromJson(report)


def test_lag_is_what_is_there_less_what_was_read() -> None:
    found = lag_of(progress(({"a": 3, "b": 5}, {"a": 10, "b": 5})))
    assert found == Lag(QUERY, "orders to lake", 7, {"a": 7, "b": 0})
    assert found.messages == 7
    assert found.bytes_behind is None


def test_bytes_are_those_of_messages_of_the_mean_size() -> None:
    latest = {"a": 10, "b": 5, "": {"mean_bytes": {"a": 12.5, "b": 3.0}}}
    found = lag_of(progress(({"a": 4, "b": 5}, latest)))
    assert found is not None
    assert (found.bytes, found.bytes_behind) == ({"a": 75, "b": 0}, 75)


def test_prometheus_gets_a_value_for_each_stream_until_the_query_ends() -> None:
    registry = CollectorRegistry()
    listener = LagListener(metrics=metrics_in(registry))
    latest = {"a": 10, "b": 5, "": {"mean_bytes": {"a": 12.5}}}
    listener.onQueryProgress(QueryProgressEvent(progress(({"a": 4, "b": 2}, latest))))

    def value(of: str, stream: str) -> float | None:
        labels = {"query": "orders to lake", "query_id": QUERY, "stream": stream}
        return registry.get_sample_value(f"leveret_spark_{of}_behind_latest", labels)

    assert [value("offsets", "a"), value("offsets", "b")] == [6, 3]
    assert [value("bytes", "a"), value("bytes", "b")] == [75, None]
    ended = {"id": QUERY, "runId": QUERY, "exception": None, "errorClassOnException": None}
    listener.onQueryTerminated(QueryTerminatedEvent.fromJson(ended))
    assert value("offsets", "a") is None


def test_a_stream_made_anew_is_not_behind() -> None:
    found = lag_of(progress(({"a": 30}, {"a": 10})))
    assert found is not None
    assert found.streams == {"a": 0}


def test_other_sources_count_for_nothing() -> None:
    kafka = {"topic": {"0": 1}}
    assert lag_of(progress((kafka, {"topic": {"0": 9}}), (4, 5), (None, None))) is None
    mixed = lag_of(progress((kafka, kafka), ({"a": 1}, {"a": 2})))
    assert mixed is not None
    assert mixed.streams == {"a": 1}


def test_a_spark_before_4_2_has_the_latest_offset_in_the_batchs_end() -> None:
    end = with_latest({"a": 3, "": {"ids": {"a": "9f"}}}, {"a": 10})
    report = progress((end, end))
    found = lag_of(report)
    assert found is not None
    assert found.streams == {"a": 7}
    assert offset_in_progress(report.sources[0].endOffset) == end
    assert offset_in_progress(str(end)) == end  # as `query.lastProgress` has it
    assert [offset_in_progress(text) for text in (None, "null", "None", "[1]", "{'a")] == [None] * 5


def test_a_listener_hands_each_lag_on() -> None:
    seen: list[Lag] = []
    listener = LagListener(seen.append)
    for end in (3, 10):
        listener.onQueryProgress(QueryProgressEvent(progress(({"a": end}, {"a": 10}))))
    assert [lag.messages for lag in seen] == [7, 0]
