"""The HTML page of the lifecycle job: latencies, outcomes, and stuck messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.pipelines.lifecycle.result import STAGES, Lifecycle, QueueLife
from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin, milliseconds
from leveret.pipelines.pages.rows import table

_QUEUE = (
    "vhost queue messages acked dead_lettered expired dropped cleared open stuck redelivered cut "
    "oldest_waiting_ms"
)
_STAGE = "vhost queue stage messages p50_ms p95_ms p99_ms max_ms"
_STUCK = "vhost queue sequence exchange routing_key message_id last_event last_at"


def lifecycle_page(found: Lifecycle, stuck_after: str, command: str = "") -> str:
    """Return the page; `command` is the equivalent command."""
    stages = [row for queue in found.queues for row in _stages(queue)]
    return job_page(
        "lifecycle",
        f"The life of messages, from {found.source}",
        {
            "origin": PageOrigin(found.source, command, found.first, found.last).described(),
            "stuck_after": stuck_after,
            "events": found.events,
            "unreadable": found.unreadable,
            "published": found.published,
            "published_to_streams": found.published_to_streams,
            "now": milliseconds(found.now),
            "unroutable": found.unroutable,
            "messages": found.messages,
            "queues": table(_QUEUE, map(_ends, found.queues), found.queues_total),
            "stages": table(_STAGE, stages, len(stages)),
            "stuck": table(_STUCK, _stuck(found), found.stuck_total),
        },
    )


def _ends(queue: QueueLife) -> Sequence[object]:
    return (
        queue.vhost, queue.queue, queue.messages, queue.acked, queue.dead_lettered, queue.expired,
        queue.dropped, queue.cleared, queue.open, queue.stuck, queue.redelivered, queue.cut,
        queue.oldest_waiting_ms,
    )  # fmt: skip


def _stages(queue: QueueLife) -> Iterator[Sequence[object]]:
    for stage in STAGES:
        latency = queue.stages.get(stage)
        if latency is not None:
            yield (
                queue.vhost, queue.queue, stage, latency.messages, latency.p50_ms, latency.p95_ms,
                latency.p99_ms, latency.max_ms,
            )  # fmt: skip


def _stuck(found: Lifecycle) -> Iterator[Sequence[object]]:
    for one in found.stuck:
        yield (
            one.vhost, one.queue, one.sequence, one.exchange, one.routing_key, one.message_id or "",
            one.last_event, milliseconds(one.last_at),
        )  # fmt: skip
