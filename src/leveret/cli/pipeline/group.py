"""`leveret pipeline`: runs a Spark job once, with its own session.

For other uses, such as a schedule or a continuous query, call the functions of `leveret.pipelines`.
"""

from __future__ import annotations

import typer

from leveret.cli.pipeline import archive, deadletter, lifecycle, replay, report, route
from leveret.cli.suggesting import SafeGroup

MODULES = (archive, report, route, deadletter, replay, lifecycle)


def app() -> typer.Typer:
    """Return the group."""
    made = typer.Typer(
        cls=SafeGroup,
        help="Run a Spark job over the broker's messages.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
    )
    for module in MODULES:
        for command in module.COMMANDS:
            made.command(command.__name__)(command)
    return made
