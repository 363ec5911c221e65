"""`leveret pipeline`: runs a Spark job once, with its own session.

For other uses, such as a schedule or a continuous query, call the functions of `leveret.pipelines`.
"""

from __future__ import annotations

import typer

from leveret.cli.helping.commands import add, group
from leveret.cli.pipeline import archive, deadletter, lifecycle, replay, report, route

MODULES = (archive, report, route, deadletter, replay, lifecycle)


def app() -> typer.Typer:
    """Return the group."""
    made = group("Run a Spark job over the broker's messages.")
    for module in MODULES:
        for command in module.COMMANDS:
            add(made, command)
    return made
