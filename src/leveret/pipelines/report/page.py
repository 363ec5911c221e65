"""The HTML page of the report job: totals, traffic over time, keys and windows."""

from __future__ import annotations

from leveret.pipelines.pages.bars import bars_span, stacks
from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin, milliseconds
from leveret.pipelines.pages.rows import ROWS_SHOWN, span_text, table
from leveret.pipelines.report.result import Report, TrafficRow

_TRAFFIC = (
    "exchange routing_key messages bytes size_p50 size_p99 latency_p50_ms latency_p99_ms "
    "window_start"
)


def report_page(report: Report, command: str = "") -> str:
    """Return the page; `command` is the equivalent command."""
    ends = bars_span(report.bars, report.bar_seconds)
    first, last = ends or (None, None)
    names = [
        f"{key.exchange or '(default exchange)'} / {key.routing_key or '(empty key)'}"
        for key in report.keys
    ]
    seconds = (ends[1] - ends[0]).total_seconds() if ends else report.window_seconds
    return job_page(
        "report",
        f"Traffic of {report.source}",
        {
            "origin": PageOrigin(report.source, command, first, last).described(),
            "messages": report.messages,
            "bytes": report.bytes,
            "seconds": seconds,
            "bar": span_text(report.bar_seconds),
            "window": span_text(report.window_seconds),
            "window_seconds": report.window_seconds,
            "plot": stacks(report.bars, names, report.bar_seconds),
            "keys": table(_TRAFFIC, map(_cells, report.keys), report.keys_total),
            "windows": table(_TRAFFIC, map(_cells, _most(report)), report.rows_total),
        },
    )


def _most(report: Report) -> list[TrafficRow]:
    """Return the rows with the most messages, as many as a page shows, in the report's order."""
    ranked = sorted(range(len(report.rows)), key=lambda place: -report.rows[place].messages)
    return [report.rows[place] for place in sorted(ranked[:ROWS_SHOWN])]


def _cells(row: TrafficRow) -> tuple[object, ...]:
    return (
        row.exchange, row.routing_key, row.messages, row.bytes, row.size_p50, row.size_p99,
        row.latency_p50_ms, row.latency_p99_ms, milliseconds(row.window_start),
    )  # fmt: skip
