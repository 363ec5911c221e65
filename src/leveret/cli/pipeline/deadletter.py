"""`leveret pipeline deadletter` and `republish`: analyse dead letters, and publish them again."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import exits, options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted

ErrorPath = Annotated[
    str | None,
    typer.Option("--error-path", metavar="PATH", help="The path of the error in a JSON body."),
]
ErrorHeader = Annotated[
    list[str] | None,
    typer.Option("--error-header", metavar="NAME", help="A header that contains the error."),
]


def deadletter(
    stream: running.Stream = None,
    path: running.Archive = None,
    from_queue: Annotated[
        str | None,
        typer.Option("--from-queue", metavar="QUEUE", help="Read the messages of this queue."),
    ] = None,
    since: running.Since = None,
    until: running.Until = None,
    window: Annotated[
        str, typer.Option("--window", metavar="SPAN", help="The length of a bar of the plot.")
    ] = "1 minute",
    error_path: ErrorPath = None,
    error_header: ErrorHeader = None,
    html: running.Html = None,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Group dead letters by queue, reason and error.

    Each group has its count and samples.
    """
    if from_queue is None:
        running.need_source(stream, path)
    with running.session("deadletter", master) as spark:
        from leveret.pipelines import deadletter as run
        from leveret.pipelines.letters import ERROR_HEADERS

        found = run(
            spark,
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            from_queue=from_queue,
            path=path,
            since=since,
            until=until,
            window=window,
            error_headers=error_header or ERROR_HEADERS,
            error_path=error_path,
            html_path=html,
            progress=running.say,
        )
    output.say(f"{counted(found.letters, 'dead letter')} in {counted(found.groups_total, 'group')}")
    for one in found.groups:
        output.say_columns(one.letters, one.queue, one.reason, one.fingerprint, one.kind)


ToQueue = Annotated[
    str | None, typer.Option("--to-queue", metavar="QUEUE", help="Publish all to this queue.")
]
ToExchange = Annotated[
    str | None,
    typer.Option("--to-exchange", metavar="EXCHANGE", help="Publish there, with the original key."),
]
AsPublished = Annotated[
    bool,
    typer.Option(
        "--as-published", help="Publish to the original exchange: all its queues get them again."
    ),
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="REASON", help="Only with this reason.")
]
DiedIn = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Only dead-lettered in this queue.")
]
Fingerprint = Annotated[
    str | None,
    typer.Option("--fingerprint", metavar="DIGITS", help="Only with this error."),
]
Everything = Annotated[
    bool, typer.Option("--all", help="All dead letters, if no other option selects some.")
]


def republish(
    stream: running.Stream = None,
    path: running.Archive = None,
    reason: Reason = None,
    queue: DiedIn = None,
    fingerprint: Fingerprint = None,
    everything: Everything = False,
    since: running.Since = None,
    until: running.Until = None,
    error_path: ErrorPath = None,
    error_header: ErrorHeader = None,
    to: running.To = None,
    to_queue: ToQueue = None,
    to_exchange: ToExchange = None,
    as_published: AsPublished = False,
    unroutable: running.Unroutable = "fail",
    rate: running.Rate = None,
    name: running.Name = None,
    checkpoint: running.Progress = None,
    no_dedup: running.NoDedup = False,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Publish dead letters again, each once.

    By default, each goes to the queue that it was dead-lettered in.
    """
    running.need_source(stream, path)
    chosen = (reason, queue, fingerprint, since, until)
    if not everything and all(choice is None for choice in chosen):
        text = "select dead letters by --reason, --queue, --fingerprint, --since, --until, or --all"
        raise exits.Failure(text, exits.USAGE)
    with running.session("republish", master) as spark:
        from leveret.pipelines import republish as run
        from leveret.pipelines.letters import ERROR_HEADERS

        sent = run(
            spark,
            to or uri,
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            path=path,
            reason=reason,
            queue=queue,
            fingerprint=fingerprint,
            since=since,
            until=until,
            error_headers=error_header or ERROR_HEADERS,
            error_path=error_path,
            to_queue=to_queue,
            to_exchange=to_exchange,
            as_published=as_published,
            unroutable=unroutable,
            dedup=not no_dedup,
            to_options=running.trusted_there(to, uri),
            rate=rate,
            name=name,
            checkpoint=checkpoint,
            progress=running.say,
        )
    output.say(f"{counted(sent.published, 'letter')} published as {sent.name}{sent.dropped_words}")


COMMANDS = (deadletter, republish)
