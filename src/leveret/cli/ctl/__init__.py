"""`leveret ctl`: what an operator does with a running broker, in rabbitmqctl's words.

Everything goes through the broker's HTTP API.  On the broker's machine that is its Unix socket,
which lets in only the user who runs it, without a password; elsewhere it is asked over HTTPS, by a
context.  The commands lie in a file for each concept.
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
from leveret.cli.ctl.asking import Target
from leveret.cli.place import Api, Config, ContextName, DataDir, Place, PlaceGroup

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
    """Operate a broker, in rabbitmqctl's words.

    It calls the broker's HTTP API, as --data-dir, --config, --api or --context names it, and does
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
