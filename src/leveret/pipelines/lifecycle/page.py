"""The lives of messages as one HTML page: totals, a plot of waiting, tables; it loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.pipelines.lifecycle.result import STAGES, Lifecycle, QueueLife
from leveret.pipelines.pages.markup import Markup
from leveret.pipelines.pages.parts import (
    ROWS_SHOWN,
    cut_note,
    heading,
    job_page,
    moment_text,
    paragraph,
    table,
    totals,
)
from leveret.pipelines.pages.plots import lengths

_ENDS: Final = (
    "vhost", "queue", "#messages", "#acked", "#dead-lettered", "#expired", "#dropped", "#cleared",
    "#open", "#stuck", "#redelivered", "#without beginning",
)  # fmt: skip
_STAGES: Final = ("vhost", "queue", "stage", "#messages", "#p50", "#p95", "#p99", "#most")
_STUCK: Final = (
    "vhost", "queue", "#sequence", "exchange", "routing key", "message id", "last event", "at",
)  # fmt: skip


def lifecycle_page(found: Lifecycle, stuck_after: str) -> str:
    """Return the page."""
    return job_page(
        f"The life of messages, from {found.source}",
        _totals(found),
        heading("Waiting for a consumer"),
        *_waiting(found),
        heading("How messages ended"),
        cut_note(len(found.queues), found.queues_total, "queues with the most messages"),
        table(_ENDS, [_ends(queue) for queue in found.queues]),
        heading("Stages, in milliseconds"),
        table(_STAGES, [row for queue in found.queues for row in _stages(queue)]),
        heading(f"No event for {stuck_after}"),
        cut_note(min(len(found.stuck), ROWS_SHOWN), found.stuck_total, "oldest"),
        table(
            _STUCK,
            [
                (s.vhost, s.queue, s.sequence, s.exchange, s.routing_key, s.message_id or "",
                 s.last_event, moment_text(s.last_at))
                for s in found.stuck[:ROWS_SHOWN]
            ],
        ),
    )  # fmt: skip


def _totals(found: Lifecycle) -> Markup:
    unreadable = [(f"{found.unreadable:,}", "messages that are no events")]
    return totals(
        (
            (f"{found.events:,}", "events"),
            (f"{found.messages:,}", "messages followed"),
            (f"{found.stuck_total:,}", "stuck"),
            (f"{found.unroutable:,}", "publishes without a queue"),
            *(unreadable if found.unreadable else []),
            (moment_text(found.first), "from"),
            (moment_text(found.last), "to"),
        )
    )


def _waiting(found: Lifecycle) -> list[Markup]:
    """Return a plot of the queues whose messages wait longest."""
    waits = [
        (f"{queue.vhost} {queue.queue}", queue.stages["waiting"].p95_ms)
        for queue in found.queues
        if "waiting" in queue.stages
    ]
    if not waits:
        return [paragraph("No delivery is known.")]
    waits.sort(key=lambda pair: -pair[1])
    what = "95 of 100 messages waited at most so many milliseconds"
    return [paragraph(f"{what}:"), lengths(waits, what)]


def _ends(queue: QueueLife) -> tuple[object, ...]:
    return (
        queue.vhost, queue.queue, queue.messages, queue.acked, queue.dead_lettered, queue.expired,
        queue.dropped, queue.cleared, queue.open, queue.stuck, queue.redelivered, queue.cut,
    )  # fmt: skip


def _stages(queue: QueueLife) -> Iterator[tuple[object, ...]]:
    for stage in STAGES:
        latency = queue.stages.get(stage)
        if latency is not None:
            yield (
                queue.vhost, queue.queue, stage, latency.messages, latency.p50_ms, latency.p95_ms,
                latency.p99_ms, latency.max_ms,
            )  # fmt: skip
