"""The lag of a query, from progress as Spark reports it."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from leveret.spark.listener import Lag, LagListener, lag_of

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


def test_a_listener_hands_each_lag_on() -> None:
    seen: list[Lag] = []
    listener = LagListener(seen.append)
    for end in (3, 10):
        listener.onQueryProgress(QueryProgressEvent(progress(({"a": end}, {"a": 10}))))
    assert [lag.messages for lag in seen] == [7, 0]
