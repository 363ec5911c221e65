"""`leveret ctl`: operate a running broker, with the commands of rabbitmqctl.

All commands use the broker's HTTP API.  On the broker's machine they connect to its Unix socket
without a password, which only the user who runs the broker can do.  From other machines they
connect over HTTPS, with a context.  Each concept has a module with its commands.
"""

from __future__ import annotations

from typing import Final

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
from leveret.cli.helping.commands import add, group
from leveret.cli.place import Api, Config, ContextName, DataDir, PlaceGroup
from leveret.cli.place import BrokerOptions as Place

#: The commands by the sections of the help.
SECTIONS: Final = {
    "Users and permissions": (*users.COMMANDS, *permissions.COMMANDS),
    "Vhosts": vhosts.COMMANDS,
    "Policies": policies.POLICIES,
    "Parameters": policies.PARAMETERS,
    "Definitions": definitions.COMMANDS,
    "Queues": (listings.list_queues, *messages.QUEUES),
    "Exchanges": (listings.list_exchanges, listings.list_bindings, *messages.DELAYED),
    "Streams, publishers and sinks": (
        *stream_consumers.COMMANDS,
        *publishers.COMMANDS,
        *sinks.COMMANDS,
    ),
    "Connections": (
        listings.list_connections,
        listings.list_channels,
        listings.list_consumers,
        *connections.COMMANDS,
    ),
}


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
    made = group(cls=PlaceGroup)
    made.callback()(_target)
    for section, commands in SECTIONS.items():
        for command in commands:
            add(made, command, section=section)
    return made
