"""`leveret pipeline lifecycle`: the stages of messages, from the broker's events."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted


def lifecycle(
    stream: Annotated[
        str, typer.Option("--stream", metavar="STREAM", help="The stream of events.")
    ] = "amq.leveret.events",
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Read this archive of the stream.")
    ] = None,
    stuck_after: Annotated[
        str,
        typer.Option(
            "--stuck-after", metavar="SPAN", help="Stuck after this time without an event."
        ),
    ] = "10 minutes",
    now: Annotated[
        str | None,
        typer.Option(
            "--now",
            metavar="MOMENT",
            help="The current time, for an archive (default: its newest event).",
        ),
    ] = None,
    html: running.Html = None,
    master: running.Master = "local[*]",
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Report latencies, outcomes and stuck messages."""
    with running.session("lifecycle", master) as spark:
        from leveret.pipelines import lifecycle as run

        found = run(
            spark,
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            path=path,
            stuck_after=stuck_after,
            now=now,
            html_path=html,
            progress=running.say,
        )
    output.say(f"{counted(found.events, 'event')}, {counted(found.stuck_total, 'stuck message')}")
    if found.published_to_streams:
        of = counted(found.published, "publish", "publishes")
        output.say(f"{found.published_to_streams} of {of} reached streams only")
    for queue in found.queues:
        waiting = queue.stages.get("waiting")
        waited = ("-", "-") if waiting is None else (waiting.p50_ms, waiting.p99_ms)
        oldest = "-" if queue.oldest_waiting_ms is None else queue.oldest_waiting_ms
        counts = (queue.messages, queue.acked, queue.stuck)
        output.say_columns(queue.vhost, queue.queue, *counts, *waited, oldest)


COMMANDS = (lifecycle,)
