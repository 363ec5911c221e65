"""Sinks: their owners, destinations and last batches, and the sizes of their staging queues."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Format, NewOwner, Vhost, target

Sink = Annotated[str, typer.Argument(metavar="SINK")]
Destination = Annotated[
    str, typer.Option("--destination", help="Only this destination of the sink.")
]


def list_sinks(context: typer.Context, vhost: Vhost = "/", form: Format = "table") -> None:
    """List sinks: owner, last batch, and the size, age and owners of their staging queues."""
    columns = (
        "sink",
        "destination",
        "batch",
        "messages",
        "staging.queues",
        "staging.messages",
        "staging.message_bytes",
        "staging.age_ms",
        "staging.owners",
        "owner",
    )
    target(context).show(form, columns, "sinks", vhost)


def delete_sink(
    context: typer.Context, sink: Sink, vhost: Vhost = "/", destination: Destination = ""
) -> None:
    """Delete the last batch number of a sink, for all its destinations, so that it starts again."""
    target(context).ask("DELETE", "sinks", vhost, sink, query=_place(destination))


def set_sink_owner(
    context: typer.Context,
    sink: Sink,
    user: NewOwner,
    vhost: Vhost = "/",
    destination: Destination = "",
) -> None:
    """Change the owner of a sink, for all of its destinations; only the owner can commit to it."""
    query = _place(destination)
    target(context).ask("PUT", "sinks", vhost, sink, "owner", user, query=query)


def _place(destination: str) -> dict[str, str]:
    return {"destination": destination} if destination else {}


COMMANDS: Final = (list_sinks, delete_sink, set_sink_owner)
