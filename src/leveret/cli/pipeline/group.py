"""`leveret pipeline`: the Spark jobs, each run once with a session of its own.

A longer life (a cluster, a schedule, a query that goes on) is the functions' of
`leveret.pipelines`; here are the jobs as one types them, in a file for each.
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
        help="Run a Spark job over what went through the broker.",
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
    )
    for module in MODULES:
        for command in module.COMMANDS:
            made.command(command.__name__)(command)
    return made
