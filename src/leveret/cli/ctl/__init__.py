"""`leveret ctl`: operate a running broker, with the commands of rabbitmqctl.

All commands use the broker's HTTP API.  On the broker's machine they connect to its Unix socket
without a password, which only the user who runs the broker can do.  From other machines they
connect over HTTPS, with a context.  Each concept has a module with its commands.
"""

from __future__ import annotations

import typer

from leveret.cli.ctl import (
    connections,
    definitions,
    listings,
    messages,
    permissions,
    policies,
    publishers,
    sinks,
    stream_consumers,
    users,
    vhosts,
)
from leveret.cli.ctl.asking import BrokerAddress as Target
from leveret.cli.place import Api, Config, ContextName, DataDir, PlaceGroup
from leveret.cli.place import BrokerOptions as Place

MODULES = (
    connections,
    users,
    vhosts,
    permissions,
    policies,
    definitions,
    messages,
    sinks,
    publishers,
    stream_consumers,
    listings,
)


def _target(
    context: typer.Context,
    data_dir: DataDir = None,
    config: Config = None,
    api: Api = "",
    name: ContextName = "",
) -> None:
    """Operate a broker, with the commands of rabbitmqctl.

    It calls the broker's HTTP API, as named by --data-dir, --config, --api or --context, and does
    not read LEVERET_URI.
    """
    context.obj = Target(Place(data_dir, config, api, name))


def app() -> typer.Typer:
    """Return the group."""
    made = typer.Typer(
        cls=PlaceGroup, rich_markup_mode=None, add_completion=False, no_args_is_help=True
    )
    made.callback()(_target)
    for module in MODULES:
        for command in module.COMMANDS:
            made.command(command.__name__)(command)
    return made
