"""`leveret pipeline replay`: publish messages of a stream or an archive again."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted

Exchange = Annotated[
    str | None,
    typer.Option("--exchange", "-e", metavar="EXCHANGE", help="Publish to this exchange."),
]

RoutingKey = Annotated[
    str | None,
    typer.Option("--routing-key", "-k", metavar="KEY", help="Publish with this key."),
]

ToStream = Annotated[
    str | None, typer.Option("--to-stream", metavar="STREAM", help="Publish to this stream.")
]

ToQueue = Annotated[
    str | None, typer.Option("--to-queue", metavar="QUEUE", help="Publish to this queue.")
]

FromExchange = Annotated[
    str | None,
    typer.Option("--from-exchange", metavar="EXCHANGE", help="Only messages of this exchange."),
]

Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern", metavar="PATTERN", help="A topic pattern; one of several must match."
    ),
]

Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header; all of several must match."),
]


def replay(
    stream: running.Stream = None,
    path: running.Archive = None,
    exchange: Exchange = None,
    routing_key: RoutingKey = None,
    to_stream: ToStream = None,
    to_queue: ToQueue = None,
    since: running.Since = None,
    until: running.Until = None,
    from_exchange: FromExchange = None,
    pattern: Patterns = None,
    header: Headers = None,
    to: running.To = None,
    unroutable: running.Unroutable = "fail",
    rate: running.Rate = None,
    name: running.Name = None,
    checkpoint: running.Progress = None,
    no_dedup: running.NoDedup = False,
    html: running.Html = None,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Publish messages of a stream or an archive again.

    They are published in order, once, and at a chosen rate.
    """
    running.need_source(stream, path)
    with running.session("replay", master) as spark:
        from leveret.pipelines import Destination
        from leveret.pipelines import replay as run
        from leveret.pipelines.replay.choosing import header_choice

        sent = run(
            spark,
            Destination(
                to or uri,
                exchange,
                routing_key,
                to_stream,
                to_queue,
                unroutable=unroutable,
                dedup=not no_dedup,
                options=running.trusted_there(to, uri),
            ),
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            path=path,
            since=since,
            until=until,
            from_exchange=from_exchange,
            patterns=pattern or (),
            headers=header_choice(header or ()),
            rate=rate,
            name=name,
            checkpoint=checkpoint,
            html_path=html,
            progress=running.say,
        )
    output.say(f"{counted(sent.published, 'message')} published as {sent.name}{sent.dropped_words}")


COMMANDS = (replay,)
