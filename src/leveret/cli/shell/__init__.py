"""`leveret shell`: run commands over one connection, from a prompt or from a pipe."""

from __future__ import annotations

from typing import Annotated

import typer

from leveret.cli import options
from leveret.cli.helping.commands import single
from leveret.cli.place import Config, DataDir


def shell(
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="Continue after a failed line of a pipe; by default, it ends the shell.",
        ),
    ] = False,
    uri: options.Uri = options.DEFAULT_URI,
    data_dir: DataDir = None,
    config: Config = None,
) -> int:
    """Run commands over one connection, at a prompt.

    Commands from a pipe are run one after the other.
    """
    import sys

    from leveret.cli.shell.running import run_lines
    from leveret.cli.shell.session import ShellState as Session

    with Session(options.read_uri(uri), data_dir, config) as session:
        session.connect()
        if sys.stdin.isatty() and sys.stdout.isatty():
            from leveret.cli.shell.prompt import run_prompt

            return run_prompt(session)
        return run_lines(session, sys.stdin.buffer, keep_going=keep_going)


def app() -> typer.Typer:
    """Return the command."""
    return single("shell", shell)
