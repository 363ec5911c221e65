"""The report as one HTML page: totals, a plot, and tables; it loads nothing from anywhere."""

from __future__ import annotations

from datetime import datetime, timedelta

from leveret.pipelines.pages.markup import Markup
from leveret.pipelines.pages.parts import (
    ROWS_SHOWN,
    bytes_text,
    cut_note,
    heading,
    job_page,
    moment_text,
    paragraph,
    span_text,
    table,
    totals,
)
from leveret.pipelines.pages.plots import stacks
from leveret.pipelines.report.result import Report, Traffic


def report_page(report: Report) -> str:
    """Return the page."""
    return job_page(
        f"Traffic of {report.source}",
        _totals(report),
        heading(f"Messages by {span_text(report.bar_seconds)}"),
        *_plot(report),
        heading("Keys"),
        cut_note(len(report.keys), report.keys_total, "keys with the most messages"),
        table(_COLUMNS, [_cells(row, _seconds(report)) for row in report.keys]),
        heading(f"Windows of {span_text(report.window_seconds)}"),
        cut_note(min(len(report.rows), ROWS_SHOWN), report.rows_total, "rows"),
        table(
            ("window", *_COLUMNS),
            [
                (moment_text(row.window_start), *_cells(row, report.window_seconds))
                for row in report.rows[:ROWS_SHOWN]
            ],
        ),
    )


_COLUMNS = (
    "exchange", "routing key", "#messages", "#per second", "#bytes", "#size p50", "#size p99",
    "#latency p50, ms", "#latency p99, ms",
)  # fmt: skip


def _cells(row: Traffic, seconds: float) -> tuple[object, ...]:
    """Return the cells of a row whose messages came in so many seconds."""
    latencies = (row.latency_p50_ms, row.latency_p99_ms)
    return (
        row.exchange, row.routing_key, row.messages, f"{row.messages / seconds:,.1f}", row.bytes,
        row.size_p50, row.size_p99, *("" if ms is None else ms for ms in latencies),
    )  # fmt: skip


def _totals(report: Report) -> Markup:
    ends = zip(_ends(report), ("from", "to"), strict=False)
    return totals(
        (
            (f"{report.messages:,}", "messages"),
            (bytes_text(report.bytes), "in bodies"),
            (f"{report.keys_total:,}", "exchanges and routing keys"),
            *((moment_text(end), word) for end, word in ends),
        )
    )


def _ends(report: Report) -> tuple[datetime, ...]:
    """Return the first moment of the plot and the one after its last; none when it is empty."""
    if not report.bars:
        return ()
    return report.bars[0].start, report.bars[-1].start + timedelta(seconds=report.bar_seconds)


def _seconds(report: Report) -> float:
    """Return the time that the whole report is about; a window's where none is known."""
    ends = _ends(report)
    return (ends[1] - ends[0]).total_seconds() if ends else report.window_seconds


def _plot(report: Report) -> list[Markup]:
    """Return the plot and its legend: a stack of keys for each window."""
    if not report.bars:
        return [paragraph("No message bears a time.")]
    names = [
        f"{key.exchange or '(default exchange)'} / {key.routing_key or '(no key)'}"
        for key in report.keys
    ]
    return stacks(report.bars, names, report.bar_seconds, "Messages over time")
