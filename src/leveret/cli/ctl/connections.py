"""Close the connections of clients.

A connection is named as in listings, `1.2.3.4:5 -> 1.2.3.4:5672`, or in angle brackets without
spaces, `<1.2.3.4:5->1.2.3.4:5672>`, for scripts that pass RabbitMQ a process id.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.ctl.asking import BrokerAddress, Vhost, target
from leveret.cli.printing import output
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.sizes import counted

Connection = Annotated[str, typer.Argument(metavar="CONNECTION", help="Its name or id, as listed.")]
Reason = Annotated[str, typer.Argument(metavar="REASON", help="The text for the client.")]

#: The longest pause between two closes: an hour.
_DELAY_MS_MAX: Final = 3_600_000


def id_of(name: str) -> str:
    """Return the name of a connection or a channel in angle brackets, without spaces."""
    return f"<{name.replace(' ', '')}>"


def close_connection(context: typer.Context, connection: Connection, reason: Reason) -> None:
    """Close a connection. Its client gets the reason (320)."""
    broker = target(context)
    why = _header(reason)
    name = connection
    if connection.startswith("<") and connection.endswith(">"):
        found = [row for row in _names(broker, "connections") if id_of(row) == connection]
        name = found[0] if found else connection
    broker.ask("DELETE", "connections", name, headers=why)


def close_all_connections(
    context: typer.Context,
    reason: Reason,
    vhost: Vhost = "/",
    everywhere: Annotated[bool, typer.Option("--global", help="In all vhosts.")] = False,
    per_connection_delay: Annotated[
        int,
        typer.Option(
            "--per-connection-delay",
            min=0,
            max=_DELAY_MS_MAX,
            metavar="MS",
            help="The pause after each.",
        ),
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="NUMBER", help="The maximum; 0: all.")
    ] = 0,
) -> None:
    """Close all connections of a vhost. It prints how many."""
    broker = target(context)
    why = _header(reason)
    path = ("connections",) if everywhere else ("vhosts", vhost, "connections")
    names = _names(broker, *path)
    closed = 0
    for name in names[: limit or None]:
        try:
            broker.ask("DELETE", "connections", name, headers=why)
        except exits.Failure as failure:
            # The client has already closed the connection.
            if failure.code == exits.REFUSED:
                continue
            raise
        closed += 1
        if per_connection_delay:
            time.sleep(per_connection_delay / 1000)
    output.say(f"{counted(closed, 'connection')} closed")


def _names(broker: BrokerAddress, *path: str) -> list[str]:
    """Return the names of the connections listed at a path of the API.  Raises: Failure."""
    found = broker.ask("GET", *path, query={"columns": "name"})
    if not isinstance(found, list):
        raise exits.Failure("the broker's answer is not a list", exits.PROTOCOL)
    return [str(row["name"]) for row in found if isinstance(row, dict) and "name" in row]


def _header(reason: str) -> dict[str, str]:
    """Return the header with the reason.  Raises: Failure if it is too long or not printable."""
    if not reason.isprintable() or len(reason.encode()) > SHORT_STRING_BYTES_MAX:
        text = f"REASON must be a line of at most {SHORT_STRING_BYTES_MAX} bytes"
        raise exits.Failure(text, exits.USAGE)
    # The API reads these bytes as UTF-8.
    return {"X-Reason": reason.encode().decode("latin-1")}


COMMANDS: Final = (close_connection, close_all_connections)
