"""`leveret pipeline report`: the traffic of a stream or an archive."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted


def report(
    stream: running.Stream = None,
    path: running.Archive = None,
    window: Annotated[
        str, typer.Option("--window", metavar="SPAN", help="The length of a window.")
    ] = "1 minute",
    html: running.Html = None,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Report the traffic of a stream or an archive.

    It counts by exchange, routing key and window.
    """
    running.need_source(stream, path)
    with running.session("report", master) as spark:
        from leveret.pipelines import report as run

        found = run(
            spark,
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            path=path,
            window=window,
            html_path=html,
        )
    counts = ((found.messages, "message"), (found.bytes, "byte"), (found.keys_total, "key"))
    output.say(", ".join(counted(count, noun) for count, noun in counts))
    for row in found.keys:
        output.say_columns(row.messages, row.bytes, row.exchange, row.routing_key)


COMMANDS = (report,)
