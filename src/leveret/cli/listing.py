"""`leveret list`: what a broker on this machine holds, asked through its Unix socket.

No password is needed: the socket lets in only the user who runs the broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import quote

import typer

from leveret.cli import exits

#: The columns that are shown unless others are asked for.
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
    "connections": ("name", "user", "vhost", "state", "channels", "recv_oct", "send_oct"),
}

Columns = Annotated[
    list[str] | None,
    typer.Argument(metavar="[COLUMN]...", help="Fields to show, such as message_stats.publish."),
]
VhostOption = Annotated[str, typer.Option("--vhost", "-p", help="Only this vhost's.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="PATH", help="The broker's data directory."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="PATH", help="The broker's settings file.")
]
Format = Annotated[Literal["table", "json", "tsv"], typer.Option("--format", help="How to print.")]


def queues(
    columns: Columns = None,
    vhost: VhostOption = "",
    data_dir: DataDir = None,
    config: Config = None,
    form: Format = "table",
) -> None:
    """List queues and streams."""
    _list("queues", columns, vhost, data_dir, config, form)


def exchanges(
    columns: Columns = None,
    vhost: VhostOption = "",
    data_dir: DataDir = None,
    config: Config = None,
    form: Format = "table",
) -> None:
    """List exchanges; the default exchange has no name."""
    _list("exchanges", columns, vhost, data_dir, config, form)


def bindings(
    columns: Columns = None,
    vhost: VhostOption = "",
    data_dir: DataDir = None,
    config: Config = None,
    form: Format = "table",
) -> None:
    """List bindings, also those of each queue to the default exchange."""
    _list("bindings", columns, vhost, data_dir, config, form)


def connections(
    columns: Columns = None,
    data_dir: DataDir = None,
    config: Config = None,
    form: Format = "table",
) -> None:
    """List client connections."""
    _list("connections", columns, "", data_dir, config, form)


def _list(
    what: str,
    columns: list[str] | None,
    vhost: str,
    data_dir: Path | None,
    config: Path | None,
    form: Literal["table", "json", "tsv"],
) -> None:
    """Ask for a listing and print it.  Raises: Failure."""
    from leveret.cli.management_client import get_json
    from leveret.cli.rows import print_rows

    where = f"/{quote(vhost, safe='')}" if vhost else ""
    found = get_json(find_socket(data_dir, config), f"/api/{what}{where}")
    if not isinstance(found, list):
        raise exits.Failure("the broker's answer is no listing", exits.PROTOCOL)
    # JSON shows everything unless less is asked for.
    chosen = columns or (None if form == "json" else list(COLUMNS[what]))
    print_rows(found, chosen, form)


def find_socket(data_dir: Path | None, config: Path | None) -> Path:
    """Return the broker's socket, by the same settings as its own.  Raises: Failure."""
    from leveret.config import ConfigError, load

    flags = {"data_dir": data_dir, "config_file": config}
    try:
        settings = load({name: value for name, value in flags.items() if value is not None})
    except ConfigError as error:
        raise exits.Failure(str(error), exits.CONFIG) from None
    return settings.management_socket


def app() -> typer.Typer:
    """Return the group."""
    made = typer.Typer(
        help="List queues, exchanges, bindings or connections of a broker on this machine.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
    )
    for command in (queues, exchanges, bindings, connections):
        made.command()(command)
    return made
