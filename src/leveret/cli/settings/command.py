"""`leveret config`: make a settings file for a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from leveret.cli.helping.commands import add, group
from leveret.cli.options import read_file
from leveret.cli.printing import output
from leveret.sizes import counted

#: The largest accepted file.
_FILE_BYTES_MAX: Final = 1024 * 1024


def from_rabbitmq(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A rabbitmq.conf.")],
) -> None:
    """Convert a rabbitmq.conf to a settings file.

    The settings are printed in TOML, each after the lines that it comes from. Lines without a
    counterpart are named on standard error, with the reason: redirect the output to a file, and
    read these before the first start.
    """
    from leveret.cli.settings.conversion import convert

    found = convert(read_file(file, _FILE_BYTES_MAX), os.environ)
    for line in found.toml_lines():
        output.say(line)
    for problem in found.problems:
        output.say(f"{file}:{problem.line}: {problem.key}: {problem.reason}", err=True)
    converted = counted(len(found.settings), "setting")
    left = counted(len(found.problems), "line")
    output.say(f"{converted} converted, {left} without a counterpart", err=True)


def _about() -> None:
    """Make a settings file for a broker."""


def app() -> typer.Typer:
    """Return the group."""
    made = group()
    # With a callback, typer keeps the group although it has only one command.
    made.callback()(_about)
    add(made, from_rabbitmq, "from-rabbitmq")
    return made
