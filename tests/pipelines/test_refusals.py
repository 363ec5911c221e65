"""What jobs refuse, and the words they do it in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from leveret.pipelines.refusals import JobError, at_least, moment, one_of, only_one, span_seconds


def test_what_makes_sense_is_taken() -> None:
    assert one_of("unroutable", "drop", ("fail", "drop")) == "drop"
    assert at_least("rate", 1, 1) == 1
    assert only_one(stream="s", path=None) == "stream"
    assert span_seconds("window", " 5 Minutes") == 300
    assert moment("since", None) is None
    assert moment("since", "2026-11-21") == datetime(2026, 11, 21, tzinfo=UTC)
    zoned = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert moment("since", zoned) == datetime(2026, 1, 1, tzinfo=UTC)
    assert moment("since", "2026-01-01T02:00:00+02:00") == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 minute", 60), ("5 MINUTES", 300), ("90 seconds", 90), ("2hours", 7200), ("1 day", 86_400)],
)
def test_spans(text: str, seconds: int) -> None:
    assert span_seconds("window", text) == seconds


@pytest.mark.parametrize("text", ["", "minute", "0 minutes", "-1 minute", "1 month", "1.5 hours"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="is not a span"):
        span_seconds("window", text)


def test_what_does_not_is_refused_by_name() -> None:
    with pytest.raises(JobError, match="unroutable: 'keep' is none of fail, drop"):
        one_of("unroutable", "keep", ("fail", "drop"))
    with pytest.raises(JobError, match="rate: 0 is less than 1"):
        at_least("rate", 0, 1)
    with pytest.raises(JobError, match=r"exactly one of stream, path is needed; not stream and"):
        only_one(stream="s", path="p")
    with pytest.raises(JobError, match="none was given"):
        only_one(stream=None, path=None)
    with pytest.raises(JobError, match="window: '1 month' is not a span"):
        span_seconds("window", "1 month")
    with pytest.raises(JobError, match="since: 'soon' is not a moment such as"):
        moment("since", "soon")
