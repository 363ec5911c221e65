"""Sinks: their owners, destinations and last batches, and the sizes of their staging queues."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import NewOwner, Vhost, target
from leveret.cli.listing import Format

Sink = Annotated[str, typer.Argument(metavar="SINK")]
Destination = Annotated[
    str,
    typer.Option("--destination", metavar="DESTINATION", help="Only this destination of the sink."),
]


def list_sinks(context: typer.Context, vhost: Vhost = "/", form: Format = "table") -> None:
    """List sinks with their last batches.

    Columns are also the owner, and the size, age and owners of the staging queues.
    """
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
    """Forget the last batch of a sink.

    It then starts again with any number, for all of its destinations or for one.
    """
    target(context).ask("DELETE", "sinks", vhost, sink, query=_place(destination))


def set_sink_owner(
    context: typer.Context,
    sink: Sink,
    user: NewOwner,
    vhost: Vhost = "/",
    destination: Destination = "",
) -> None:
    """Give a sink to a user.

    Only the owner can commit to it. The command is for all of its destinations or for one.
    """
    query = _place(destination)
    target(context).ask("PUT", "sinks", vhost, sink, "owner", user, query=query)


def _place(destination: str) -> dict[str, str]:
    return {"destination": destination} if destination else {}


COMMANDS: Final = (list_sinks, delete_sink, set_sink_owner)
