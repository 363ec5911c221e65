"""`leveret pipeline route`: the routes of recorded traffic in a topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.pipeline import running
from leveret.cli.printing import output
from leveret.sizes import counted


def route(
    definitions: Annotated[
        Path, typer.Argument(metavar="DEFINITIONS", help="The topology: a definitions file.")
    ],
    stream: running.Stream = None,
    path: running.Archive = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="DEFINITIONS", help="Compare with this topology."),
    ] = None,
    vhost: Annotated[
        str | None, typer.Option("--vhost", metavar="VHOST", help="The vhost in the files.")
    ] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Read bodies too, and count bytes.")] = (
        False
    ),
    html: running.Html = None,
    master: running.Master = None,
    uri: options.Uri = options.DEFAULT_URI,
) -> None:
    """Report which messages the queues of a topology get.

    The messages are those of a stream or an archive.
    """
    running.need_source(stream, path)
    with running.session("route", master) as spark:
        from leveret.pipelines import route as run

        found = run(
            spark,
            definitions,
            vhost=vhost,
            against=against,
            uri=uri if path is None else None,
            options=running.trusted(uri),
            stream=stream,
            path=path,
            sizes=sizes,
            html_path=html,
            progress=running.say,
        )
    output.say(
        f"{counted(found.messages, 'message')} of {counted(found.keys, 'key')}; "
        f"{found.unroutable_messages} unroutable; "
        f"{len(found.unused)} of {counted(len(found.bindings), 'binding')} unused"
        + (f", {len(found.not_judged)} not judged" if found.not_judged else "")
    )
    if found.against is not None:
        go = "goes" if found.moved_messages == 1 else "go"
        moved = counted(found.moved_messages, "message")
        output.say(f"{moved} {go} elsewhere than in {found.against}")
    for load in found.queues:
        change = "" if found.against is None else f"\t{load.messages - load.before:+d}"
        output.say_columns(load.messages, f"{load.queue}{change}{'  hot' if load.hot else ''}")
    for lost in found.unroutable:
        output.say_columns(lost.messages, f"{lost.reason}: {lost.exchange}", lost.routing_key)
    for binding in found.unused:
        output.say_columns(0, f"unused: {binding}")
    for binding in found.not_judged:
        output.say_columns(0, f"not judged, for dead letters: {binding}")


COMMANDS = (route,)
