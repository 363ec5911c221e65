"""`leveret man`: print a manual page, or write all of them to a directory for man(1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leveret.cli import exits
from leveret.cli.options import write_file
from leveret.cli.printing import output
from leveret.sizes import counted

#: All users of a machine may read the pages.
_MODE = 0o644


def man(
    command: Annotated[
        str, typer.Argument(metavar="[COMMAND]", help="The command; by default leveret itself.")
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write all pages there, such as share/man/man1."),
    ] = None,
) -> None:
    """Print the manual page of a command, or write all of them to a directory.

    `leveret man serve | man -l -` shows one.
    """
    from leveret.cli.manual.page import page_of

    pages = commands()
    if to is None:
        path = f"leveret {command}".strip()
        if path not in pages:
            raise exits.Failure(f"unknown command {command!r}", exits.USAGE)
        output.say_lines(page_of(path, pages[path]))
        return
    if command:
        raise exits.Failure("--to writes all pages: omit COMMAND", exits.USAGE)
    try:
        to.mkdir(parents=True, exist_ok=True)
        for path, found in pages.items():
            file = to / f"{path.replace(' ', '-')}.1"
            write_file(file, page_of(path, found))
            file.chmod(_MODE)
    except OSError as error:
        text = f"cannot write to {to}: {error.strerror}"
        raise exits.Failure(text, exits.CANNOT_CREATE) from None
    output.say(f"{counted(len(pages), 'page')} in {to}")


def commands() -> dict[str, Any]:
    """Return leveret and its commands by their command lines; each has a page."""
    from leveret.cli.root import app as root
    from leveret.cli.root import command_of

    whole: Any = command_of(root)
    found = {"leveret": whole}
    return found | {f"leveret {name}": whole.commands[name] for name in whole.commands}


def app() -> typer.Typer:
    """Return the command."""
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command("man")(man)
    return made
