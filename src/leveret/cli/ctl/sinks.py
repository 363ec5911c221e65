"""Sinks: who writes staged batches, where to, how far each is, and what waits in staging queues."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Format, Vhost, target

Sink = Annotated[str, typer.Argument(metavar="SINK")]


def list_sinks(context: typer.Context, vhost: Vhost = "/", form: Format = "table") -> None:
    """List sinks with their last batch, and what they have staged: bytes, age and owners."""
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
    )
    target(context).show(form, columns, "sinks", vhost)


def delete_sink(context: typer.Context, sink: Sink, vhost: Vhost = "/") -> None:
    """Forget the last batch of a sink, to all of its destinations: it begins anew."""
    target(context).ask("DELETE", "sinks", vhost, sink)


COMMANDS: Final = (list_sinks, delete_sink)
