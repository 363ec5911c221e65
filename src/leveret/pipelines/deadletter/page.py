"""Dead letters as one HTML page: totals, letters over time, groups and samples."""

from __future__ import annotations

from leveret.pipelines.deadletter.result import DeadLetters, Letter
from leveret.pipelines.pages.markup import Markup
from leveret.pipelines.pages.parts import (
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


def deadletter_page(found: DeadLetters) -> str:
    """Return the page."""
    return job_page(
        f"Dead letters of {found.source}",
        totals(
            (
                (f"{found.letters:,}", "dead letters"),
                (bytes_text(found.bytes), "in bodies"),
                (f"{found.groups_total:,}", "groups"),
                (f"{found.others:,}", "messages that are none"),
            )
        ),
        heading(f"Letters by {span_text(found.bar_seconds)}"),
        *_plot(found),
        heading("Groups: queue, reason and kind of error"),
        cut_note(len(found.groups), found.groups_total, "groups with the most letters"),
        _groups(found),
        heading("Their last letters"),
        _samples(found),
    )


def _plot(found: DeadLetters) -> list[Markup]:
    if not found.bars:
        return [paragraph("No letter bears a time.")]
    names = [f"{queue}: {reason}" for queue, reason in found.ends]
    return stacks(found.bars, names, found.bar_seconds, "Dead letters over time")


def _groups(found: DeadLetters) -> Markup:
    rows = [
        (
            one.queue,
            one.reason,
            one.kind,
            one.fingerprint,
            one.letters,
            one.bytes,
            moment_text(one.first.died_at),
            moment_text(one.last.died_at),
        )
        for one in found.groups
    ]
    columns = ("queue", "reason", "kind of error", "fingerprint", "#letters", "#bytes")
    return table((*columns, "first", "last"), rows)


def _samples(found: DeadLetters) -> Markup:
    columns = ("queue", "reason", "letter", "published to", "#deaths", "error", "body")
    return table(columns, [(one.queue, one.reason, *_cells(one.last)) for one in found.groups])


def _cells(letter: Letter) -> tuple[object, ...]:
    place = letter.stream if letter.offset is None else f"{letter.stream} {letter.offset}"
    address = f"{letter.exchange or '(default exchange)'} / {letter.routing_key}"
    return (place, address, letter.died_times, letter.error, letter.body)
