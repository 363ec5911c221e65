"""The listings of `leveret list`, with rabbitmqctl's names."""

from __future__ import annotations

from typing import Final

import typer

from leveret.cli.ctl.asking import Format, Vhost, target
from leveret.cli.listing import COLUMNS, Columns


def list_queues(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the queues and streams of a vhost; columns are fields of the HTTP API."""
    target(context).show(form, columns or COLUMNS["queues"], "queues", vhost)


def list_exchanges(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the exchanges of a vhost; the default exchange has no name."""
    target(context).show(form, columns or COLUMNS["exchanges"], "exchanges", vhost)


def list_bindings(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the bindings of a vhost, including each queue's binding to the default exchange."""
    target(context).show(form, columns or COLUMNS["bindings"], "bindings", vhost)


def list_connections(
    context: typer.Context, columns: Columns = None, form: Format = "table"
) -> None:
    """List client connections."""
    target(context).show(form, columns or COLUMNS["connections"], "connections")


def list_channels(context: typer.Context, columns: Columns = None, form: Format = "table") -> None:
    """List the channels of clients."""
    target(context).show(form, columns or COLUMNS["channels"], "channels")


def list_consumers(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the consumers of a vhost."""
    target(context).show(form, columns or COLUMNS["consumers"], "consumers", vhost)


COMMANDS: Final = (
    list_queues,
    list_exchanges,
    list_bindings,
    list_connections,
    list_channels,
    list_consumers,
)
