"""Which broker on this machine a command is for: by its data directory or its settings file.

The options may stand anywhere behind `leveret`: before the command (`root.py`), behind its group's
name, or at the end of the line.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leveret.cli import exits
from leveret.cli.suggesting import SafeGroup

if TYPE_CHECKING:
    from leveret.config import Settings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="PATH", help="The broker's data directory."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="PATH", help="The broker's settings file.")
]

_OPTIONS: Final = ("--data-dir", "--config")


class PlaceGroup(SafeGroup):
    """A group whose commands take the group's options `--data-dir` and `--config` as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, those options first wherever they stand before a `--`."""
        return super().parse_args(ctx, _place_first(args))


def _place_first(args: list[str]) -> list[str]:
    """Return the arguments with the options that name a place, and their values, at the front."""
    place: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg in _OPTIONS:
            place += [arg, *islice(left, 1)]
        elif arg.startswith(tuple(f"{option}=" for option in _OPTIONS)):
            place.append(arg)
        else:
            rest.append(arg)
    return place + rest


def find_socket(data_dir: Path | None, config: Path | None) -> Path:
    """Return the broker's socket, by the same settings as its own.  Raises: Failure."""
    return read_settings(data_dir, config).management_socket


def read_settings(data_dir: Path | None, config: Path | None) -> Settings:
    """Return the settings of the broker that is meant.  Raises: Failure."""
    from leveret.config import ConfigError, load

    flags = {"data_dir": data_dir, "config_file": config}
    try:
        return load({name: value for name, value in flags.items() if value is not None})
    except ConfigError as error:
        raise exits.Failure("", exits.CONFIG, *error.lines) from None
