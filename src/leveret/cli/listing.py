"""`leveret list`: listings of a broker, from its HTTP API.

On the broker's machine no password is needed, because only the user who runs the broker can connect
to its Unix socket.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import quote

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import add, group
from leveret.cli.helping.completing import vhost_names
from leveret.cli.place import Api, BrokerOptions, Config, ContextName, DataDir, PlaceGroup

#: The default columns.
COLUMNS: Final = {
    "queues": (
        "vhost",
        "name",
        "type",
        "messages_ready",
        "messages_unacknowledged",
        "consumers",
    ),
    "exchanges": ("vhost", "name", "type", "durable", "internal"),
    "bindings": ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
    "quotas": ("of", "name", "limit", "used", "max", "refused"),
    "memory": ("kind", "of", "bytes", "max"),
    "channels": (
        "name", "user", "vhost", "number", "consumer_count", "messages_unacknowledged",
    ),
    "consumers": (
        "queue.vhost", "queue.name", "consumer_tag", "channel_details.name", "ack_required",
        "prefetch_count", "messages_unacknowledged", "active",
    ),
    "connections": ("name", "user", "vhost", "state", "channels", "recv_oct", "send_oct"),
}  # fmt: skip

Columns = Annotated[
    list[str] | None,
    typer.Argument(metavar="COLUMN", help="Fields of the HTTP API to show."),
]
VhostOption = Annotated[
    str,
    typer.Option(
        "--vhost", "-p", metavar="VHOST", autocompletion=vhost_names, help="Only in this vhost."
    ),
]
Format = Annotated[
    Literal["table", "json", "tsv"],
    typer.Option("--format", metavar="table|json|tsv", help="The format."),
]


def queues(
    context: typer.Context,
    columns: Columns = None,
    vhost: VhostOption = "",
    form: Format = "table",
) -> None:
    """List queues and streams."""
    _list(context, "queues", columns, vhost, form)


def exchanges(
    context: typer.Context,
    columns: Columns = None,
    vhost: VhostOption = "",
    form: Format = "table",
) -> None:
    """List exchanges. The default exchange has no name."""
    _list(context, "exchanges", columns, vhost, form)


def bindings(
    context: typer.Context,
    columns: Columns = None,
    vhost: VhostOption = "",
    form: Format = "table",
) -> None:
    """List bindings, also those to the default exchange."""
    _list(context, "bindings", columns, vhost, form)


def connections(
    context: typer.Context,
    columns: Columns = None,
    form: Format = "table",
) -> None:
    """List client connections."""
    _list(context, "connections", columns, "", form)


def quotas(
    context: typer.Context,
    columns: Columns = None,
    form: Format = "table",
) -> None:
    """List the limits of users and vhosts, and their use."""
    _list(context, "quotas", columns, "", form)


def memory(
    context: typer.Context,
    columns: Columns = None,
    form: Format = "table",
) -> None:
    """List the broker's memory for clients, by kind."""
    _list(context, "memory", columns, "", form)


def _list(
    context: typer.Context,
    what: str,
    columns: list[str] | None,
    vhost: str,
    form: Literal["table", "json", "tsv"],
) -> None:
    """Request a listing and print it.  Raises: Failure."""
    from leveret.cli.management_client import get_json
    from leveret.cli.printing.rows import print_rows

    where = f"/{quote(vhost, safe='')}" if vhost else ""
    found = get_json(context.obj.find_api(), f"/api/{what}{where}")
    if not isinstance(found, list):
        raise exits.Failure("the broker's answer is not a list", exits.PROTOCOL)
    # JSON shows all fields unless columns are given.
    chosen = columns or (None if form == "json" else list(COLUMNS[what]))
    print_rows(found, chosen, form)


def _where(
    context: typer.Context,
    data_dir: DataDir = None,
    config: Config = None,
    api: Api = "",
    name: ContextName = "",
) -> None:
    """List the objects of a broker.

    It calls the broker's HTTP API, as named by --data-dir, --config, --api or --context, and does
    not read LEVERET_URI.
    """
    context.obj = BrokerOptions(data_dir, config, api, name)


def app() -> typer.Typer:
    """Return the group."""
    made = group(cls=PlaceGroup)
    made.callback()(_where)
    for command in (queues, exchanges, bindings, connections, quotas, memory):
        add(made, command)
    return made
