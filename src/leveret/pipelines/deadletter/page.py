"""The HTML page about dead letters: totals, letters over time, reasons, groups and samples."""

from __future__ import annotations

from leveret.pipelines.deadletter.result import DeadLetterGroup, DeadLetters
from leveret.pipelines.pages.bars import bars_span, stacks
from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin, milliseconds
from leveret.pipelines.pages.rows import span_text, table

_GROUP = (
    "queue reason kind fingerprint letters bytes first_at last_at "
    "stream offset exchange routing_key died_times error body"
)


def deadletter_page(found: DeadLetters, command: str = "") -> str:
    """Return the page; `command` is the equivalent command."""
    names = [f"{queue}: {reason}" for queue, reason in found.ends]
    first, last = bars_span(found.bars, found.bar_seconds) or (None, None)
    return job_page(
        "deadletter",
        f"Dead letters of {found.source}",
        {
            "origin": PageOrigin(found.source, command, first, last).described(),
            "letters": found.letters,
            "bytes": found.bytes,
            "others": found.others,
            "bar": span_text(found.bar_seconds),
            "plot": stacks(found.bars, names, found.bar_seconds),
            "groups": table(_GROUP, map(_cells, found.groups), found.groups_total),
        },
    )


def _cells(group: DeadLetterGroup) -> tuple[object, ...]:
    last = group.last
    return (
        group.queue, group.reason, group.kind, group.fingerprint, group.letters, group.bytes,
        milliseconds(group.first.died_at), milliseconds(last.died_at), last.stream, last.offset,
        last.exchange, last.routing_key, last.died_times, last.error, last.body,
    )  # fmt: skip
