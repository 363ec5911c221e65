"""The listings of `leveret list`, with rabbitmqctl's names."""

from __future__ import annotations

import typer

from leveret.cli.ctl.asking import Vhost, target
from leveret.cli.listing import COLUMNS, Columns, Format


def list_queues(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the queues and streams of a vhost."""
    target(context).show(form, COLUMNS["queues"], "queues", vhost, columns=columns)


def list_exchanges(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the exchanges of a vhost. The default exchange has no name."""
    target(context).show(form, COLUMNS["exchanges"], "exchanges", vhost, columns=columns)


def list_bindings(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the bindings of a vhost.

    It includes those of all queues to the default exchange.
    """
    target(context).show(form, COLUMNS["bindings"], "bindings", vhost, columns=columns)


def list_connections(
    context: typer.Context, columns: Columns = None, form: Format = "table"
) -> None:
    """List client connections."""
    target(context).show(form, COLUMNS["connections"], "connections", columns=columns)


def list_channels(context: typer.Context, columns: Columns = None, form: Format = "table") -> None:
    """List the channels of clients."""
    target(context).show(form, COLUMNS["channels"], "channels", columns=columns)


def list_consumers(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the consumers of a vhost."""
    target(context).show(form, COLUMNS["consumers"], "consumers", vhost, columns=columns)
