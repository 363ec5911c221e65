"""`leveret ctl`: what an operator does with a running broker, in rabbitmqctl's words.

Everything goes through the broker's Unix socket, which lets in only the user who runs it; so no
command takes a password to log in with.  The commands lie in a file for each concept.
"""

from __future__ import annotations

import typer

from leveret.cli.ctl import (
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
from leveret.cli.place import Config, DataDir, PlaceGroup

MODULES = (
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


def _target(context: typer.Context, data_dir: DataDir = None, config: Config = None) -> None:
    """Operate a broker on this machine, in rabbitmqctl's words."""
    context.obj = Target(data_dir, config)


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
